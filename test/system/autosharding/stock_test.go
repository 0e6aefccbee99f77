package autosharding

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/autosharding"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
)

// serviceConfig is what deploy/docs/GUIDE.md gives to a stock client in any language. Here gRPC
// for Go takes it; in v1.85.0 its policy is registered and reads its config, but
// cannot be used: that is as far as it goes.
//
//go:embed service_config.json
var serviceConfig string

// With this config a stock client routes each call by the header slice-key; its
// channel factory makes the connection to a Distributor for "slicer".
func Example_serviceConfig() {
	cc, err := grpc.NewClient("dns:///my-service:8080",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	// The header's value: XXH64(application key) >> 1, as 16 hex digits.
	fmt.Println("slice-key:", assignment.KeyOf("user-42"))
	// Output: slice-key: 1cbf4e9d3b57be40
}

// policyConfig is the part of the service config that is the policy's.
func policyConfig(t *testing.T) map[string]any {
	t.Helper()
	var sc struct {
		LoadBalancingConfig []map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(serviceConfig), &sc); err != nil {
		t.Fatal(err)
	}
	if len(sc.LoadBalancingConfig) != 1 || sc.LoadBalancingConfig[0][autosharding.Name] == nil {
		t.Fatalf("the service config does not name %s", autosharding.Name)
	}
	return sc.LoadBalancingConfig[0][autosharding.Name]
}

func TestStockPolicyReadsItsConfig(t *testing.T) {
	parser, ok := balancer.Get(autosharding.Name).(balancer.ConfigParser)
	if !ok {
		t.Fatalf("no policy %s that reads a config is registered", autosharding.Name)
	}
	config := policyConfig(t)
	parse := func() error {
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.ParseConfig(b)
		return err
	}
	if err := parse(); err != nil {
		t.Error(err)
	}
	if err := assignment.ValidateJobName(config["autoshardingTarget"].(string)); err != nil {
		t.Error(err)
	}
	// The parser looks at what it is given: without a field it complains.
	for _, field := range []string{"channelFactoryKey", "autoshardingTarget", "keyHeaderName"} {
		was := config[field]
		delete(config, field)
		if err := parse(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
		config[field] = was
	}
	if _, err := grpc.NewClient("dns:///my-service:8080", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(strings.Replace(serviceConfig, "autoshardingTarget", "target", 1))); err == nil {
		t.Error("gRPC takes a service config that the policy would refuse")
	}
}
