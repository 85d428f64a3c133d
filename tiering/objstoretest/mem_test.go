package objstoretest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"firn/tiering/objstore"
)

func TestMem(t *testing.T) {
	Run(t, func(*testing.T) objstore.Store { return objstore.NewMem() })
}

func TestInjectWithoutFaults(t *testing.T) {
	Run(t, func(*testing.T) objstore.Store { return objstore.Inject(objstore.NewMem(), nil) })
}

func TestMeasured(t *testing.T) {
	Run(t, func(*testing.T) objstore.Store {
		return objstore.Measured(objstore.NewMem(), prometheus.NewRegistry())
	})
}
