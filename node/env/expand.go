package env

import "strings"

// Expand replaces $(NAME) by what lookup knows; a reference it does not know stays as it is, and $$ is a plain dollar.
func Expand(text string, lookup func(string) (string, bool)) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(text[i+2:], ')')
			if end < 0 {
				b.WriteByte('$')
				continue
			}
			name := text[i+2 : i+2+end]
			if value, ok := lookup(name); ok {
				b.WriteString(value)
			} else {
				b.WriteString(text[i : i+3+end])
			}
			i += 2 + end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}
