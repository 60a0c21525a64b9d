// Asks the allocator of Kubernetes what becomes of a claim on each node of a made-up world.
//
// It reads worlds, a JSON object each, from its input, and writes an answer in a line for each.
// tests/lab/native/test_claim_verdicts.py runs it beside claims/rules: both have to say the same. Gates
// are those that Kubernetes 1.36 has on by default.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
)

// A world is what the scheduler knows; claims are those that others hold. Quiet: without a log, whose
// lines cost more than the search that they tell of.
type world struct {
	Quiet   bool                      `json:"quiet"`
	Nodes   []*core.Node              `json:"nodes"`
	Claim   *resource.ResourceClaim   `json:"claim"`
	Claims  []*resource.ResourceClaim `json:"claims"`
	Classes []*resource.DeviceClass   `json:"classes"`
	Slices  []*resource.ResourceSlice `json:"slices"`
}

// A verdict is that of one node: devices in the order of the allocation, or an error, or neither.
type verdict struct {
	Results []resource.DeviceRequestAllocationResult `json:"results,omitempty"`
	Error   string                                   `json:"error,omitempty"`
	Aborted bool                                     `json:"aborted,omitempty"`
	Log     [][2]string                              `json:"log,omitempty"`
}

var features = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

var compiled = cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})

const limit = 10 * time.Second // the scheduler's own for a node, filterTimeout

func main() {
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	encoder := json.NewEncoder(os.Stdout)
	for {
		var next world
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "error: a world:", err)
			os.Exit(1)
		}
		answer := make(map[string]verdict, len(next.Nodes))
		for _, node := range next.Nodes {
			answer[node.Name] = judge(next, node)
		}
		if err := encoder.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

// judge has an allocator for each node: what it remembers of one must not tell of another.
func judge(in world, node *core.Node) verdict {
	steps := &steps{quiet: in.Quiet}
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	ctx = klog.NewContext(ctx, logr.New(steps))
	allocator, err := structured.NewAllocator(
		ctx, features, held(in.Claims), lister(in.Classes), in.Slices, compiled)
	if err != nil {
		return verdict{Error: err.Error(), Aborted: true}
	}
	results, err := allocator.Allocate(ctx, node, []*resource.ResourceClaim{in.Claim})
	answer := verdict{Log: steps.lines}
	if err != nil {
		answer.Error = err.Error()
		answer.Aborted = !errors.Is(err, structured.ErrFailedAllocationOnNode)
	}
	for _, result := range results {
		answer.Results = append(answer.Results, result.Devices.Results...)
	}
	for i := range answer.Results {
		answer.Results[i].ShareID = nil // a random one
	}
	return answer
}

// held counts devices as the plugin of the scheduler does: those of admin access are held by nobody.
func held(claims []*resource.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, device := range claim.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
			switch {
			case device.AdminAccess != nil && *device.AdminAccess:
			case device.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(
					structured.MakeSharedDeviceID(id, device.ShareID))
				if device.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(
						structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
				}
			}
		}
	}
	return state
}

// A lister has the classes of a world.
type lister []*resource.DeviceClass

func (l lister) List() ([]*resource.DeviceClass, error) { return l, nil }

func (l lister) Get(name string) (*resource.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

// Steps keeps what the allocator logs of each device: why it is not taken.
type steps struct {
	quiet bool
	lines [][2]string
}

func (s *steps) Init(logr.RuntimeInfo)          {}
func (s *steps) Enabled(int) bool               { return !s.quiet }
func (s *steps) Error(error, string, ...any)    {}
func (s *steps) WithValues(...any) logr.LogSink { return s }
func (s *steps) WithName(string) logr.LogSink   { return s }
func (s *steps) Info(_ int, text string, kv ...any) {
	device := ""
	for i := 0; i+1 < len(kv); i += 2 {
		if id, ok := kv[i+1].(structured.DeviceID); ok && kv[i] == "device" {
			device = id.String()
		}
	}
	if len(s.lines) < 400 {
		s.lines = append(s.lines, [2]string{text, device})
	}
}
