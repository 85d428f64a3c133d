package stand

import "syscall"

// dieWithParent ends a process with the thread that started it, so that nothing
// is left behind by a run that is killed. Go's main thread lives as long as the
// process only if the starter is locked to it; elsewhere a thread may end early,
// so processes are started by goroutines that do not lock theirs.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
