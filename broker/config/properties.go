package config

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLine bounds a logical line of a properties file.
const maxLine = 1 << 20

// ReadProperties reads Java's .properties format: "key=value", "key: value" or
// "key value", comments by # and !, continuation by a backslash at the end,
// escapes \t \n \r \f \uXXXX. A key given twice takes its last value.
func ReadProperties(r io.Reader) (map[string]string, error) {
	out := map[string]string{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	n := 0
	for sc.Scan() {
		n++
		line := strings.TrimLeft(sc.Text(), " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		at := n
		for continued(line) {
			line = line[:len(line)-1]
			if !sc.Scan() {
				break
			}
			n++
			line += strings.TrimLeft(sc.Text(), " \t\f")
			if len(line) > maxLine {
				return nil, fmt.Errorf("config: line %d is longer than %d bytes", at, maxLine)
			}
		}
		k, v := splitProperty(strings.TrimRight(line, "\r"))
		key, err := unescape(k)
		if err != nil {
			return nil, fmt.Errorf("config: line %d: %w", at, err)
		}
		value, err := unescape(v)
		if err != nil {
			return nil, fmt.Errorf("config: line %d: %w", at, err)
		}
		out[key] = strings.TrimSpace(value)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("config: read properties after line %d: %w", n, err)
	}
	return out, nil
}

// continued: line ends with an odd number of backslashes.
func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// splitProperty splits at the first unescaped '=', ':' or blank.
func splitProperty(line string) (key, value string) {
	i := 0
	for i < len(line) && !strings.ContainsRune("=: \t\f", rune(line[i])) {
		if line[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(line))
	key, value = line[:i], strings.TrimLeft(line[i:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return key, value
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				b = append(b, s[i])
			}
			continue
		}
		i++
		switch s[i] {
		case 't':
			b = append(b, '\t')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 'f':
			b = append(b, '\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf(`\u wants four hexadecimal digits`)
			}
			u, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`\u wants four hexadecimal digits, not %q`, s[i+1:i+5])
			}
			b = utf8.AppendRune(b, rune(u))
			i += 4
		default:
			b = append(b, s[i])
		}
	}
	return string(b), nil
}

// FromEnv maps KAFKA_* variables to keys as the apache/kafka image does: the
// prefix goes, capitals become small, "_" stands for ".", "__" for "_" and "___"
// for "-". Variables that the image's scripts use themselves are left out, and
// listeners follow from advertised.listeners where only those are given.
func FromEnv(environ []string) map[string]string {
	out := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		rest, ok := strings.CutPrefix(name, "KAFKA_")
		if !ok || scriptVariable(rest) {
			continue
		}
		key := strings.ToLower(rest)
		key = strings.ReplaceAll(key, "___", "\x00")
		key = strings.ReplaceAll(key, "__", "\x01")
		key = strings.ReplaceAll(key, "_", ".")
		key = strings.ReplaceAll(key, "\x00", "-")
		key = strings.ReplaceAll(key, "\x01", "_")
		out[key] = value
	}
	if adv := out["advertised.listeners"]; adv != "" && out["listeners"] == "" {
		var ls []string
		for _, l := range SplitList(adv) {
			scheme, rest, _ := strings.Cut(l, "://")
			port := rest[strings.LastIndex(rest, ":")+1:]
			ls = append(ls, scheme+"://0.0.0.0:"+port)
		}
		out["listeners"] = strings.Join(ls, ",")
	}
	return out
}

// envName is the variable that FromEnv reads a key from.
func envName(key string) string {
	return "KAFKA_" + strings.ToUpper(strings.NewReplacer("-", "___", "_", "__", ".", "_").Replace(key))
}

// scriptVariable: a KAFKA_ variable that configures Java or the start scripts.
func scriptVariable(rest string) bool {
	switch rest {
	case "VERSION", "HOME", "DEBUG", "OPTS", "HEAP_OPTS", "JVM_PERFORMANCE_OPTS", "GC_LOG_OPTS",
		"JMX_OPTS", "JMX_PORT", "JMX_HOSTNAME", "DEBUG_SUSPEND_FLAG":
		return true
	}
	return strings.HasPrefix(rest, "LOG4J")
}
