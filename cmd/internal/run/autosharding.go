package run

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding"
)

const endpointFlag = "autosharding-endpoint"

// BindEndpoint adds the flag that says what clients of gRPC's auto-sharding
// protocol call a task.
func BindEndpoint(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, endpointFlag, autosharding.EndpointAddress,
		"what clients of gRPC's auto-sharding protocol call a task, as their resolver does: `address`, name, or name.SUFFIX")
}

// CheckEndpoint says whether the value is allowed.
func CheckEndpoint(value string) error {
	var field *assignment.FieldError
	if err := autosharding.CheckEndpoint("--"+endpointFlag, value); errors.As(err, &field) {
		return Usagef("%w", field)
	}
	return nil
}
