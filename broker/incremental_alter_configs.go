package broker

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
)

// handleIncrementalAlterConfigs answers IncrementalAlterConfigs: v0–1.
func handleIncrementalAlterConfigs(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	twice := resourceSet{}
	for i := range req.Resources {
		twice.add(req.Resources[i].ResourceType, req.Resources[i].ResourceName)
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		err := twice.check(in.ResourceType, in.ResourceName)
		if err == nil {
			err = b.alterConfigs(ctx, in.ResourceType, in.ResourceName, b.editConfigs(in), req.ValidateOnly)
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		out.ErrorCode, out.ErrorMessage = errorCode(err), errorMessage(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// editConfigs is the change that sets, deletes, appends and subtracts.
func (b *Broker) editConfigs(in *kmsg.IncrementalAlterConfigsRequestResource) configChange {
	return func(before map[string]string) (map[string]string, error) {
		after := maps.Clone(before)
		if after == nil {
			after = map[string]string{}
		}
		seen := map[string]bool{}
		for _, c := range in.Configs {
			if seen[c.Name] {
				return nil, refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
			}
			seen[c.Name] = true
			if c.Op == kmsg.IncrementalAlterConfigOpDelete {
				delete(after, c.Name)
				continue
			}
			if c.Value == nil {
				return nil, refuse(kerr.InvalidRequest, "Null value not supported for : %s", c.Name)
			}
			switch c.Op {
			case kmsg.IncrementalAlterConfigOpSet:
				after[c.Name] = *c.Value
			case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
				list, err := b.editList(in.ResourceType, c, before)
				if err != nil {
					return nil, err
				}
				after[c.Name] = strings.Join(list, ",")
			default:
				return nil, refuse(kerr.InvalidRequest, "Unknown operations type %d", c.Op)
			}
		}
		return after, nil
	}
}

// editList appends to or subtracts from a list, beginning with its default where
// the resource has no value of its own.
func (b *Broker) editList(kind kmsg.ConfigResourceType, c kmsg.IncrementalAlterConfigsRequestResourceConfig, before map[string]string) ([]string, error) {
	find := b.settings().Registry().Topic
	if kind == kmsg.ConfigResourceTypeBroker {
		find = b.settings().Registry().Broker
	}
	key, ok := find(c.Name)
	if !ok {
		return nil, refuse(kerr.InvalidConfig, "Unknown config name: %s", c.Name)
	}
	if key.Type != config.TypeList {
		return nil, refuse(kerr.InvalidConfig, "Config value append or subtract is not allowed for config key: %s", c.Name)
	}
	current, ok := before[c.Name]
	if !ok {
		current = key.Default
	}
	list, items := config.SplitList(current), config.SplitList(*c.Value)
	if c.Op == kmsg.IncrementalAlterConfigOpSubtract {
		return slices.DeleteFunc(list, func(s string) bool { return slices.Contains(items, s) }), nil
	}
	for _, item := range items {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list, nil
}
