// Command scheduling asks the plugins of kube-scheduler's default profile about pods and clusters.
//
// Each line of the input is a cluster with one pending pod; each line of the output says which nodes take the pod, why
// the others do not, and the scores. Nothing is bound, and no API server is needed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	scheduler, err := newScheduler(ctx)
	if err != nil {
		return err
	}
	input := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for input.More() {
		var cluster Cluster
		if err := input.Decode(&cluster); err != nil {
			return fmt.Errorf("reading a cluster: %w", err)
		}
		cluster.setDefaults()
		result, err := scheduler.evaluate(ctx, &cluster)
		if err != nil {
			result = &Result{Error: err.Error()}
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
	return output.Flush()
}
