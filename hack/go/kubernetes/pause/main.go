// Command pause is the first process of a pod, and of what hack/cluster keeps in namespaces: it holds them and reaps orphans.
//
// Its arguments mean nothing to it; they are there for those who look for it. What makes or fills the namespaces is not its business.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap buries all that have ended: one signal may tell of several.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
