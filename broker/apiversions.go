package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions tells what the dispatch table holds. There are no features: they
// belong to KRaft.
func apiVersions(_ *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if r.version >= 3 && !(softwareName(req.ClientSoftwareName) && softwareName(req.ClientSoftwareVersion)) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	for _, a := range apis() {
		resp.ApiKeys = append(resp.ApiKeys, apiRange(&a))
	}
	return resp
}

// apiVersionsUnknown answers an ApiVersions request of a version that we don't
// know, in v0, which every client can read: it then asks again in a version that
// we do (KIP-511).
func apiVersionsUnknown(a *api) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = append(resp.ApiKeys, apiRange(a))
	return resp
}

func apiRange(a *api) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = int16(a.key), a.min, a.max
	return k
}

// softwareName: letters, digits, and between them also dots and hyphens.
func softwareName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
