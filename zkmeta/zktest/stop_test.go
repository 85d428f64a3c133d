package zktest

import (
	"os/exec"
	"testing"
)

func TestStop(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if stopped(cmd.Process.Pid) {
		t.Error("a process that runs counts as stopped")
	}
	for range 2 { // a stopped one may be stopped again
		if err := Stop(cmd.Process); err != nil {
			t.Fatal(err)
		}
		if !stopped(cmd.Process.Pid) {
			t.Error("it runs on")
		}
	}
}
