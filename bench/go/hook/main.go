// A driver that attaches in a hook of the runtime (NRI), and keeps nothing: the floor of the
// fail-open score. Pods with its annotation get an interface `nic0` while their sandbox starts. What
// happens to such a pod while the driver is late or away is the runtime's to decide: this program
// is the way in which drivers of this kind are called, and no driver of anybody.
//
// As bench/fail_open/stopping_agent.py it waits before and behind its act, where a file `trap` names
// the step, until there is a file `go`.
package main

import (
	"context"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const (
	annotation = "fail-open.example.com/nic"
	folder     = "/run/fail-open"
	longest    = 2 * time.Minute
)

type hook struct{}

// RunPodSandbox is called before the pod's containers are made.
func (hook) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	if pod.GetAnnotations()[annotation] == "" {
		return nil
	}
	stop("hook")
	for _, namespace := range pod.GetLinux().GetNamespaces() {
		if namespace.GetType() == "network" {
			words := strings.Fields("ip link add nic0 type veth peer name nic1")
			act := exec.Command("nsenter", append([]string{"--net=" + namespace.GetPath()}, words...)...)
			if output, err := act.CombinedOutput(); err != nil {
				log.Printf("%s/%s: %v: %s", pod.GetNamespace(), pod.GetName(), err, output)
				return err
			}
		}
	}
	stop("hooked")
	return nil
}

func stop(step string) {
	trap, reached := filepath.Join(folder, "trap"), filepath.Join(folder, "reached")
	text, err := os.ReadFile(trap)
	if err != nil || strings.TrimSpace(string(text)) != step || os.Rename(trap, reached) != nil {
		return
	}
	for until := time.Now().Add(longest); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(folder, "go")); err == nil {
			break
		}
	}
	os.Remove(reached)
}

func main() {
	driver, err := stub.New(hook{}, stub.WithPluginName("fail-open-hook"), stub.WithPluginIdx("10"))
	if err != nil {
		log.Fatal(err)
	}
	// It ends when the runtime hangs up, as it does on a plugin that was late.
	log.Fatal(driver.Run(context.Background()))
}
