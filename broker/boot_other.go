//go:build !linux

package broker

// bootID identifies this boot of the machine; "" if it can't be told: a crash is
// then taken for one of the machine.
func bootID() string { return "" }
