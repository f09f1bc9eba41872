package expression

import (
	"crypto/sha1"
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"reflect"
)

const shortHashLength = 20

// SHA1Hex returns the SHA-1 of a text in hexadecimal digits. It is for identification, not for protection.
func SHA1Hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// ShortHash returns the first 20 digits of SHA1Hex.
func ShortHash(s string) string {
	return SHA1Hex(s)[:shortHashLength]
}

func sha3sum(value any) (string, error) {
	s, err := text(value)
	if err != nil {
		return "", err
	}
	sum := sha3.Sum256([]byte(s))
	return hex.EncodeToString(sum[:]), nil
}

func sha3short(value any, length ...int) (string, error) {
	digits := shortHashLength
	switch {
	case len(length) > 1:
		return "", fmt.Errorf("sha3short takes a text and a length, got %d lengths", len(length))
	case len(length) == 1:
		digits = length[0]
	}
	if digits <= 0 {
		return "", fmt.Errorf("the length must be positive, got %d", digits)
	}
	sum, err := sha3sum(value)
	if err != nil {
		return "", err
	}
	return sum[:min(digits, len(sum))], nil
}

func shortHash(value any) (string, error) {
	s, err := text(value)
	if err != nil {
		return "", err
	}
	return ShortHash(s), nil
}

// text converts a scalar. A field that does not exist is an empty text, for example the namespace of a cluster-scoped object.
func text(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case fmt.Stringer:
		return v.String(), nil
	}
	switch reflect.TypeOf(value).Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Func:
		return "", fmt.Errorf("cannot hash a %T", value)
	}
	return fmt.Sprint(value), nil
}
