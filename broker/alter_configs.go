package broker

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleAlterConfigs answers AlterConfigs: v0–2. What a resource had and the
// request doesn't name is gone afterwards; IncrementalAlterConfigs is kinder.
func handleAlterConfigs(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	twice := resourceSet{}
	for i := range req.Resources {
		twice.add(req.Resources[i].ResourceType, req.Resources[i].ResourceName)
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		err := twice.check(in.ResourceType, in.ResourceName)
		if err == nil {
			err = b.alterConfigs(ctx, in.ResourceType, in.ResourceName, replaceConfigs(in.Configs), req.ValidateOnly)
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		out.ErrorCode, out.ErrorMessage = errorCode(err), errorMessage(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// replaceConfigs is the change that puts configs in the place of all there were.
func replaceConfigs(configs []kmsg.AlterConfigsRequestResourceConfig) configChange {
	return func(map[string]string) (map[string]string, error) {
		after := make(map[string]string, len(configs))
		var null []string
		for _, c := range configs {
			if _, ok := after[c.Name]; ok {
				return nil, refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
			}
			if c.Value == nil {
				null = append(null, c.Name)
				continue
			}
			after[c.Name] = *c.Value
		}
		if null != nil {
			return nil, refuse(kerr.InvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
		}
		return after, nil
	}
}

// resourceSet counts how often a request names each resource.
type resourceSet map[resource]int

type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

func (s resourceSet) add(kind kmsg.ConfigResourceType, name string) { s[resource{kind, name}]++ }

func (s resourceSet) check(kind kmsg.ConfigResourceType, name string) error {
	if s[resource{kind, name}] > 1 {
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	return nil
}
