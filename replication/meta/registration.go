package meta

import "context"

// Registration is a broker's persistent node. It is written by registrations and
// clean shutdowns alone, so that its version stands for the broker epoch.
type Registration struct {
	ID int32
	// Epoch is the broker epoch, raised by each registration.
	Epoch int64
	// ValidFrom: what a Member names of this broker holds from this epoch on (R6).
	ValidFrom int64
	StorageID string
	BootID    string
	// Clean is the mark of a clean shutdown; the next registration consumes it.
	Clean *CleanShutdown
	// Retired: an operator has unregistered it. Registering ends that.
	Retired bool
	Version int32
	Rev     int64
}

// CleanShutdown says that a broker went in order: all that it was counted for is
// on its disks. It holds if the log directories carry the same nonce.
type CleanShutdown struct {
	Epoch     int64  `json:"broker_epoch"`
	StorageID string `json:"storage_id"`
	Nonce     string `json:"nonce"`
}

type registrationJSON struct {
	Version     int            `json:"version"`
	BrokerEpoch int64          `json:"broker_epoch"`
	ValidFrom   int64          `json:"valid_from"`
	StorageID   string         `json:"storage_id"`
	BootID      string         `json:"boot_id"`
	Clean       *CleanShutdown `json:"clean_shutdown,omitempty"`
	Retired     bool           `json:"retired,omitempty"`
}

// EncodeRegistration is the value of r's node.
func EncodeRegistration(r Registration) []byte {
	return encode(registrationJSON{1, r.Epoch, r.ValidFrom, r.StorageID, r.BootID, r.Clean, r.Retired})
}

// decodeRegistration reads the persistent node of broker id.
func decodeRegistration(id int32, n Node) (Registration, error) {
	what := "registration of broker " + itoa(id)
	var j registrationJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Registration{}, err
	}
	if j.BrokerEpoch < 1 || j.ValidFrom < 1 || j.ValidFrom > j.BrokerEpoch {
		return Registration{}, malformed(what, "broker epoch %d, valid from %d", j.BrokerEpoch, j.ValidFrom)
	}
	return Registration{
		ID: id, Epoch: j.BrokerEpoch, ValidFrom: j.ValidFrom, StorageID: j.StorageID, BootID: j.BootID, Clean: j.Clean, Retired: j.Retired,
		Version: n.Version, Rev: n.Rev,
	}, nil
}

// LoadRegistration reads a broker's persistent node; ErrNotFound if it never registered.
func LoadRegistration(ctx context.Context, s Store, id int32) (Registration, error) {
	n, err := s.Get(ctx, RegistrationPath(id))
	if err != nil {
		return Registration{}, err
	}
	return decodeRegistration(id, n)
}

// Member is the broker in this registration.
func (r Registration) Member() Member { return Member{r.ID, r.Epoch} }

// Holds: what m was counted for is still there (R6).
func (r Registration) Holds(m Member) bool {
	return m.ID == r.ID && m.Epoch >= r.ValidFrom && m.Epoch <= r.Epoch
}

// Fence checks that the broker is registered, and still in this registration.
func (r Registration) Fence() []Op {
	return []Op{
		{Kind: Check, Path: RegistrationPath(r.ID), Version: r.Version},
		{Kind: Check, Path: BrokerPath(r.ID), Version: AnyVersion},
	}
}

// ShutDown ends r's registration in order. Before it, everything that the broker
// was counted for is on its disks, and nonce in its log directories.
func ShutDown(r Registration, nonce string) Write {
	r.Clean = &CleanShutdown{Epoch: r.Epoch, StorageID: r.StorageID, Nonce: nonce}
	return Write{
		Ops: []Op{
			{Kind: Set, Path: RegistrationPath(r.ID), Value: EncodeRegistration(r), Version: r.Version},
			{Kind: Delete, Path: BrokerPath(r.ID), Version: AnyVersion},
		},
		Note: Note{Brokers: true},
	}
}

// Retire unregisters a broker that is gone for good. Its node stays, for its epoch
// must never begin anew; what it gave up and its configs go. o and c are those as
// read. That it hosts nothing any more is the caller's to see to.
func Retire(r Registration, o Offline, c Config) Write {
	r.Retired, r.Clean = true, nil
	w := Write{
		Ops:  []Op{{Kind: Set, Path: RegistrationPath(r.ID), Value: EncodeRegistration(r), Version: r.Version}},
		Note: Note{Brokers: true},
	}
	if o.Version != Missing {
		w.Ops = append(w.Ops, Op{Kind: Delete, Path: offlinePath(r.ID), Version: o.Version})
	}
	if c.Version != Missing {
		w.Ops = append(w.Ops, Op{Kind: Delete, Path: ConfigPath(BrokerConfig, itoa(r.ID)), Version: c.Version})
		w.Note.Configs = []string{string(BrokerConfig) + "/" + itoa(r.ID)}
	}
	return w
}
