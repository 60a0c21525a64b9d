// Asks the allocator of Kubernetes what becomes of a claim on each node of a made-up world.
//
// DeviceTaintRules become taints of slices before, by the scheduler's own tracker of slices.
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
	beta "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/util/sets"
	informers "k8s.io/client-go/informers/resource/v1"
	betainformers "k8s.io/client-go/informers/resource/v1beta2"
	listers "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
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
	Rules   []*beta.DeviceTaintRule   `json:"rules"`
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
		if err := next.taint(); err != nil {
			fmt.Fprintln(os.Stderr, "error: rules:", err)
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

// taint has the slices as the tracker lists them, in their old order: it has none.
func (w *world) taint() error {
	slices, rules, classes := newInformer(), newInformer(), newInformer()
	for _, rule := range w.Rules {
		if err := rules.indexer.Add(rule); err != nil {
			return err
		}
	}
	tracked, err := tracker.StartTracker(context.Background(), tracker.Options{
		EnableDeviceTaintRules: true,
		SliceInformer:          sliceInformer{slices},
		TaintInformer:          ruleInformer{informer: rules},
		ClassInformer:          classInformer{informer: classes},
	})
	if err != nil {
		return err
	}
	defer tracked.Stop()
	places := make(map[string]int, len(w.Slices))
	for place, slice := range w.Slices {
		places[slice.Name] = place
		if err := slices.indexer.Add(slice); err != nil {
			return err
		}
		slices.handler.OnAdd(slice, true)
	}
	patched, err := tracked.ListPatchedResourceSlices()
	if err != nil {
		return err
	}
	if len(patched) != len(w.Slices) {
		return fmt.Errorf("%d of %d slices are tracked", len(patched), len(w.Slices))
	}
	for _, slice := range patched {
		w.Slices[places[slice.Name]] = slice
	}
	return nil
}

// An informer has what is put into it, and asks no server. Its handler is called by hand.
type informer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer
	handler cache.ResourceEventHandler
}

func newInformer() *informer {
	return &informer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
}

func (i *informer) AddIndexers(more cache.Indexers) error { return i.indexer.AddIndexers(more) }
func (i *informer) GetIndexer() cache.Indexer             { return i.indexer }
func (i *informer) AddEventHandler(
	handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return synced{}, nil
}
func (i *informer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }
func (i *informer) Informer() cache.SharedIndexInformer                             { return i }

// Three kinds of informers, of which the tracker asks no more than this.
type sliceInformer struct{ *informer }

func (sliceInformer) Lister() listers.ResourceSliceLister { return nil }

type ruleInformer struct {
	betainformers.DeviceTaintRuleInformer
	informer *informer
}

func (r ruleInformer) Informer() cache.SharedIndexInformer { return r.informer }

type classInformer struct {
	informers.DeviceClassInformer
	informer *informer
}

func (c classInformer) Informer() cache.SharedIndexInformer { return c.informer }

// Synced is a handler's registration that has seen everything.
type synced struct{}

func (synced) HasSynced() bool                     { return true }
func (synced) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (synced) Name() string                        { return "" }
func (synced) Done() <-chan struct{}               { return closed }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

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
