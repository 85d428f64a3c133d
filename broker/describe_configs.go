package broker

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
)

// handleDescribeConfigs answers DescribeConfigs: v1–4, for topics and brokers.
//
//	v1 sources and synonyms
//	v3 types, and documentation for who asks
func handleDescribeConfigs(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	x := b.topics.Load()
	for i := range req.Resources {
		in := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		entries, err := b.describeConfigs(x, in)
		out.ErrorCode, out.ErrorMessage = errorCode(err), errorMessage(err)
		for _, e := range entries {
			out.Configs = append(out.Configs, describedConfig(e, req.IncludeSynonyms, req.IncludeDocumentation))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (b *Broker) describeConfigs(x *topicIndex, in *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	names := in.ConfigNames
	if len(names) == 0 {
		names = nil // all
	}
	switch in.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if words := checkTopicName(in.ResourceName); words != "" {
			return nil, refuse(kerr.InvalidTopicException, "%s", words)
		}
		t := x.byName[in.ResourceName]
		if t == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		return x.settings.DescribeTopic(t.overrides, neverArchived(t.Name), names), nil
	case kmsg.ConfigResourceTypeBroker:
		if in.ResourceName == "" {
			return x.settings.DescribeDynamicDefault(names), nil
		}
		if err := b.checkBrokerName(in.ResourceName); err != nil {
			return nil, err
		}
		return x.settings.DescribeBroker(names), nil
	}
	return nil, refuse(kerr.InvalidRequest, "Unsupported resource type: %d", in.ResourceType)
}

// checkBrokerName: a broker speaks for its own configs only.
func (b *Broker) checkBrokerName(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	}
	if int32(id) != b.cfg.NodeID {
		return refuse(kerr.InvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", b.cfg.NodeID, name)
	}
	return nil
}

func describedConfig(e config.Entry, synonyms, docs bool) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value = e.Key.Name, configValue(e.Value)
	out.ReadOnly, out.IsSensitive = e.ReadOnly, e.Key.Secret
	out.Source = kmsg.ConfigSource(e.Value.Source)
	out.IsDefault = e.Value.Source == config.SourceDefault
	out.ConfigType = configTypes[e.Key.Type]
	if docs && e.Key.Doc != "" {
		out.Documentation = &e.Key.Doc
	}
	if synonyms {
		for _, v := range e.Synonyms {
			s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			s.Name, s.Value, s.Source = v.Name, configValue(v), kmsg.ConfigSource(v.Source)
			out.ConfigSynonyms = append(out.ConfigSynonyms, s)
		}
	}
	return out
}

// configTypes are the protocol's numbers of the types.
var configTypes = map[config.Type]kmsg.ConfigType{
	config.TypeBoolean:  kmsg.ConfigTypeBoolean,
	config.TypeString:   kmsg.ConfigTypeString,
	config.TypeInt:      kmsg.ConfigTypeInt,
	config.TypeShort:    kmsg.ConfigTypeShort,
	config.TypeLong:     kmsg.ConfigTypeLong,
	config.TypeDouble:   kmsg.ConfigTypeDouble,
	config.TypeList:     kmsg.ConfigTypeList,
	config.TypeClass:    kmsg.ConfigTypeClass,
	config.TypePassword: kmsg.ConfigTypePassword,
}
