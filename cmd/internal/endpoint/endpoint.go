// Package endpoint is the flag that the programs with a Distributor in them share.
// It is apart from package run so that the others do not link a Distributor.
package endpoint

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/distributor/autosharding"
)

const name = "autosharding-endpoint"

// Bind adds the flag that says what clients of gRPC's auto-sharding
// protocol call a task.
func Bind(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, name, autosharding.EndpointAddress,
		"what clients of gRPC's auto-sharding protocol call a task, as their resolver does: `address`, name, name.SUFFIX, /address or HOST/address, or several, separated by commas")
}

// Check reports whether the value is allowed.
func Check(value string) error {
	var field *assignment.FieldError
	if err := autosharding.CheckEndpoint("--"+name, value); errors.As(err, &field) {
		return run.Usagef("%w", field)
	}
	return nil
}
