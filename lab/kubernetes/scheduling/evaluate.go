package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Rejection is why one plugin rejects a node, or a pod whatever the node.
type Rejection struct {
	Plugin     string   `json:"plugin"`
	Reasons    []string `json:"reasons"`
	Resolvable bool     `json:"resolvable"`
}

// Scores are the scores of one node: by plugin, 0 to 100, and their sum by the weights of the profile.
type Scores struct {
	Plugins map[string]int64 `json:"plugins"`
	Total   int64            `json:"total"`
}

// Result is one line of the output.
type Result struct {
	// Error is what the framework reports instead of a decision.
	Error string `json:"error,omitempty"`
	// Pod is the rejection by all nodes at once.
	Pod *Rejection `json:"pod,omitempty"`
	// Nodes are all rejections of each node in the order of the plugins; kube-scheduler reports the first only.
	Nodes map[string][]Rejection `json:"nodes,omitempty"`
	// Scores are those of the nodes that no plugin rejects.
	Scores map[string]Scores `json:"scores,omitempty"`
}

// scheduler is the default profile of kube-scheduler.
type scheduler struct {
	profile  config.KubeSchedulerProfile
	recorder *metrics.MetricAsyncRecorder
}

func newScheduler(ctx context.Context) (*scheduler, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	return &scheduler{defaults.Profiles[0], metrics.NewMetricsAsyncRecorder(1, time.Hour, ctx.Done())}, nil
}

func (s *scheduler) evaluate(ctx context.Context, cluster *Cluster) (*Result, error) {
	snapshot := cluster.snapshot()
	filters := map[string]framework.FilterPlugin{}
	profile, err := frameworkruntime.NewFramework(
		ctx,
		keepingFilters(plugins.NewInTreeRegistry(), filters),
		&s.profile,
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(cluster.informers()),
		frameworkruntime.WithMetricsRecorder(s.recorder),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	nodes, err := snapshot.List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	candidates, status, restricting := profile.RunPreFilterPlugins(ctx, state, cluster.Pod)
	result := &Result{Nodes: map[string][]Rejection{}, Scores: map[string]Scores{}}
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		pod := rejection(status.Plugin(), status)
		result.Pod = &pod
		return result, nil
	}
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		name := node.Node().Name
		rejections := []Rejection{}
		if !candidates.AllNodes() && !candidates.NodeNames.Has(name) {
			for _, plugin := range sets.List(restricting) {
				rejections = append(rejections, Rejection{Plugin: plugin, Reasons: []string{"excluded before the filters"}})
			}
		}
		for _, enabled := range profile.ListPlugins().Filter.Enabled {
			if state.GetSkipFilterPlugins().Has(enabled.Name) {
				continue
			}
			status := filters[enabled.Name].Filter(ctx, state, cluster.Pod, node)
			if status.IsRejected() {
				rejections = append(rejections, rejection(enabled.Name, status))
			} else if !status.IsSuccess() {
				return nil, fmt.Errorf("%s on %s: %w", enabled.Name, name, status.AsError())
			}
		}
		result.Nodes[name] = rejections
		if len(rejections) == 0 {
			feasible = append(feasible, node)
		}
	}
	return result, score(ctx, profile, state, cluster.Pod, feasible, result.Scores)
}

// score adds the scores of the feasible nodes to scores.
func score(
	ctx context.Context,
	profile framework.Framework,
	state fwk.CycleState,
	pod *v1.Pod,
	feasible []fwk.NodeInfo,
	scores map[string]Scores,
) error {
	if len(feasible) == 0 {
		return nil
	}
	if status := profile.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	weighted, status := profile.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	weights := map[string]int64{}
	for _, enabled := range profile.ListPlugins().Score.Enabled {
		weights[enabled.Name] = int64(enabled.Weight)
	}
	for _, node := range weighted {
		byPlugin := map[string]int64{}
		for _, each := range node.Scores {
			byPlugin[each.Name] = each.Score / weights[each.Name]
		}
		scores[node.Name] = Scores{byPlugin, node.TotalScore}
	}
	return nil
}

func rejection(plugin string, status *fwk.Status) Rejection {
	return Rejection{plugin, status.Reasons(), status.Code() != fwk.UnschedulableAndUnresolvable}
}

// keepingFilters returns a registry whose factories also keep the filters that they make.
func keepingFilters(registry frameworkruntime.Registry, kept map[string]framework.FilterPlugin) frameworkruntime.Registry {
	keeping := frameworkruntime.Registry{}
	for name, factory := range registry {
		keeping[name] = func(ctx context.Context, args runtime.Object, handle framework.Handle) (framework.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			if filter, ok := plugin.(framework.FilterPlugin); ok {
				kept[name] = filter
			}
			return plugin, err
		}
	}
	return keeping
}
