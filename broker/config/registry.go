package config

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed keys.tsv
var kafkaKeys string

//go:embed ours.tsv
var ownKeys string

//go:embed docs.tsv
var keyDocs string

// Scope tells what a key configures.
type Scope string

const (
	ScopeBroker Scope = "broker"
	ScopeTopic  Scope = "topic"
)

// Type is a key's type, by Kafka's name.
type Type string

const (
	TypeBoolean  Type = "boolean"
	TypeInt      Type = "int"
	TypeLong     Type = "long"
	TypeShort    Type = "short"
	TypeDouble   Type = "double"
	TypeString   Type = "string"
	TypeList     Type = "list"
	TypeClass    Type = "class"
	TypePassword Type = "password"
)

// Update tells where a key can be changed at run time.
type Update string

const (
	UpdateStatic  Update = "static"
	UpdateCluster Update = "cluster" // for all brokers, or one
	UpdateBroker  Update = "broker"  // for one broker
	UpdateTopic   Update = "topic"
)

// Stance is what we make of a key.
type Stance string

const (
	StanceIgnored Stance = "accept-ignore" // taken, without effect, with a warning
	StanceMapped  Stance = "accept-map"
	StanceRefused Stance = "refuse"
	StanceUnknown Stance = "unknown" // of KRaft, share groups and the like
	StanceOurs    Stance = "ours"
)

// Key is one configuration key.
type Key struct {
	Scope      Scope
	Name       string
	Type       Type
	Default    string
	HasDefault bool
	Valid      string
	Update     Update
	Secret     bool
	Synonyms   []string
	Stance     Stance
	// Doc is what it does, in a sentence or two; empty for keys without effect.
	Doc string
}

// Registry is every key that we know.
type Registry struct {
	broker map[string]*Key
	topic  map[string]*Key
	order  []*Key // broker keys, then topic keys, by name
}

// NewRegistry reads the embedded tables. They are part of the program: a row
// that can't be read is a bug, and a panic.
func NewRegistry() *Registry {
	r := &Registry{broker: map[string]*Key{}, topic: map[string]*Key{}}
	for line := range strings.Lines(kafkaKeys + ownKeys) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 9 {
			panic(fmt.Sprintf("config: table row with %d fields: %q", len(f), line))
		}
		k := &Key{
			Scope: Scope(f[0]), Name: f[1], Type: Type(f[2]), Valid: f[4],
			Update: Update(f[5]), Secret: f[6] == "secret", Stance: Stance(f[8]),
		}
		if f[3] != "null" {
			k.Default, k.HasDefault = f[3], true
		}
		if f[7] != "" {
			k.Synonyms = strings.Split(f[7], ",")
		}
		if k.Scope == ScopeTopic {
			r.topic[k.Name] = k
		} else {
			r.broker[k.Name] = k
		}
		r.order = append(r.order, k)
	}
	r.document()
	slices.SortFunc(r.order, func(a, b *Key) int {
		if c := strings.Compare(string(a.Scope), string(b.Scope)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return r
}

// document gives the keys their docs. A broker key that is a topic's default does
// for all topics what that does for one.
func (r *Registry) document() {
	for line := range strings.Lines(keyDocs) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if f[0] == "" || f[0][0] == '#' {
			continue
		}
		of := r.broker
		if Scope(f[0]) == ScopeTopic {
			of = r.topic
		}
		if len(f) != 3 || of[f[1]] == nil {
			panic(fmt.Sprintf("config: docs of no key: %q", line))
		}
		of[f[1]].Doc = f[2]
	}
	for _, t := range r.topic {
		for _, name := range t.Synonyms {
			if b := r.broker[name]; b != nil && b.Doc == "" && t.Doc != "" {
				b.Doc = "The default of topics' " + t.Name + ". " + t.Doc
			}
		}
	}
}

// Broker finds a broker key.
func (r *Registry) Broker(name string) (*Key, bool) { k, ok := r.broker[name]; return k, ok }

// Topic finds a topic key.
func (r *Registry) Topic(name string) (*Key, bool) { k, ok := r.topic[name]; return k, ok }

// Keys lists the keys of a scope, by name.
func (r *Registry) Keys(s Scope) []*Key {
	var out []*Key
	for _, k := range r.order {
		if k.Scope == s {
			out = append(out, k)
		}
	}
	return out
}

// sameThing are all broker keys that stand for what name stands for.
func (r *Registry) sameThing(name string) []string {
	for _, k := range r.topic {
		if slices.Contains(k.Synonyms, name) {
			return k.Synonyms
		}
	}
	return nil
}

// siblings are the broker keys that stand for one thing together with name, from
// name on: log.retention.ms, .minutes and .hours.
func (r *Registry) siblings(name string) []string {
	for _, k := range r.order {
		if k.Scope != ScopeTopic || len(k.Synonyms) < 2 {
			continue
		}
		if i := slices.Index(k.Synonyms, name); i >= 0 {
			return k.Synonyms[i:]
		}
	}
	return []string{name}
}

// listed: the key is told when all are asked for. Patterns of keys aren't, and
// neither are keys of other worlds.
func (k *Key) listed() bool {
	return k.Stance != StanceUnknown && !strings.Contains(k.Name, "<")
}

// Check tells whether value is one that the key takes, in Kafka's words where it
// isn't; its errors are *Problem. An empty value is one only for keys of words.
func (k *Key) Check(value string) error {
	v := strings.TrimSpace(value)
	var n float64
	var err error
	switch k.Type {
	case TypeBoolean:
		if l := strings.ToLower(v); l != "true" && l != "false" {
			return k.invalid(value, "Expected value to be either true or false")
		}
		return nil
	case TypeInt, TypeLong, TypeShort:
		bits := map[Type]int{TypeInt: 32, TypeLong: 64, TypeShort: 16}[k.Type]
		var i int64
		i, err = strconv.ParseInt(v, 10, bits)
		n = float64(i)
	case TypeDouble:
		if n, err = strconv.ParseFloat(v, 64); math.IsNaN(n) {
			err = strconv.ErrRange
		}
	default:
		return k.checkWords(v)
	}
	if err != nil {
		return k.invalid(value, "Not a number of type "+strings.ToUpper(string(k.Type)))
	}
	lo, hi, also, ok := k.bounds()
	switch {
	case !ok || slices.Contains(also, n) || n >= lo && n <= hi:
		return nil
	case len(also) > 0:
		return k.invalid(v, fmt.Sprintf("Value must be between %.f and %.f or equal to %.f", lo, hi, also[0]))
	case n < lo:
		return k.invalid(v, "Value must be at least "+strconv.FormatFloat(lo, 'f', -1, 64))
	default:
		return k.invalid(v, "Value must be no more than "+strconv.FormatFloat(hi, 'f', -1, 64))
	}
}

// invalid refuses a value of the key as Kafka does.
func (k *Key) invalid(value, why string) error {
	return problem("Invalid value %s for configuration %s: %s", value, k.Name, why)
}

// throttled is the range of a list of replicas.
const throttled = "[partitionId]:[brokerId],... or *"

// checkWords checks a string or list against "[word,word]".
func (k *Key) checkWords(v string) error {
	if k.Valid == "non-empty string" {
		if v == "" {
			return k.invalid(v, "String must be non-empty")
		}
		return nil
	}
	if k.Valid == throttled && v != "*" {
		for _, item := range SplitList(v) {
			p, b, _ := strings.Cut(item, ":")
			_, err := strconv.ParseUint(p, 10, 31)
			if _, err2 := strconv.ParseUint(b, 10, 31); err != nil || err2 != nil {
				return k.invalid(v, k.Name+" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
			}
		}
		return nil
	}
	if !strings.HasPrefix(k.Valid, "[") || strings.Contains(k.Valid, "...") {
		return nil
	}
	words := strings.Split(strings.Trim(k.Valid, "[]"), ",")
	given := []string{v}
	if k.Type == TypeList {
		given = SplitList(v)
	}
	for _, g := range given {
		if !slices.Contains(words, g) {
			return k.invalid(g, "String must be one of: "+strings.Join(words, ", "))
		}
	}
	return nil
}

// bounds reads "[lo,...]", "[lo,...,hi]", and "… or n".
func (k *Key) bounds() (lo, hi float64, also []float64, ok bool) {
	valid, or, _ := strings.Cut(k.Valid, " or ")
	if !strings.HasPrefix(valid, "[") {
		return 0, 0, nil, false
	}
	f := strings.Split(strings.Trim(valid, "[]"), ",")
	if len(f) < 2 || f[1] != "..." {
		return 0, 0, nil, false
	}
	lo, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0, 0, nil, false
	}
	hi = math.Inf(1)
	if len(f) == 3 {
		if hi, err = strconv.ParseFloat(f[2], 64); err != nil {
			return 0, 0, nil, false
		}
	}
	if n, err := strconv.ParseFloat(strings.TrimSpace(or), 64); err == nil {
		also = append(also, n)
	}
	return lo, hi, also, true
}

// SplitList splits a list value at commas, dropping blanks and empty items.
func SplitList(v string) []string {
	var out []string
	for s := range strings.SplitSeq(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// Suggest names the known key nearest to name, or "" if none is near.
func (r *Registry) Suggest(s Scope, name string) string {
	best, dist := "", 1+len(name)/3
	for _, k := range r.order {
		if k.Scope != s || k.Stance == StanceUnknown {
			continue
		}
		if d := distance(name, k.Name, dist); d < dist {
			best, dist = k.Name, d
		}
	}
	return best
}

// distance is the edit distance of a and b, or limit if it is at least that.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return min(row[len(b)], limit)
}
