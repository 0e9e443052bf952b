package entitlements

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Kinds of resource keys and of their values.
const (
	Numeric = "numeric"
	Boolean = "boolean"
)

// MaxNumber is the largest number that a rule may give.
const MaxNumber = 1_000_000_000_000

// Value is what a rule gives and a pool has of one resource key. The zero Value is nothing. Values can be compared.
type Value struct {
	// Kind is Numeric, Boolean, or empty for nothing.
	Kind   string
	Number int64
	Yes    bool
}

// Number returns a numeric value.
func Number(n int64) Value { return Value{Kind: Numeric, Number: n} }

// Yes returns a boolean value.
func Yes(yes bool) Value { return Value{Kind: Boolean, Yes: yes} }

// IsNothing says whether there is no value.
func (v Value) IsNothing() bool { return v.Kind == "" }

// String returns the value for a person: "10", "yes", "no", "nothing".
func (v Value) String() string {
	switch v.Kind {
	case Numeric:
		return strconv.FormatInt(v.Number, 10)
	case Boolean:
		if v.Yes {
			return "yes"
		}
		return "no"
	}
	return "nothing"
}

// MarshalJSON writes a number, a boolean, or null.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.Kind {
	case Numeric:
		return strconv.AppendInt(nil, v.Number, 10), nil
	case Boolean:
		return strconv.AppendBool(nil, v.Yes), nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(data []byte) error {
	var any any
	if err := json.Unmarshal(data, &any); err != nil {
		return err
	}
	switch x := any.(type) {
	case nil:
		*v = Value{}
	case bool:
		*v = Yes(x)
	case float64:
		n, err := strconv.ParseInt(string(data), 10, 64)
		if err != nil {
			return fmt.Errorf("entitlement value %s is not a whole number", data)
		}
		*v = Number(n)
	default:
		return fmt.Errorf("entitlement value %s is neither a number nor a boolean", data)
	}
	return nil
}

// valueOf returns the value of two columns of which one at most is set.
func valueOf(number *int64, yes *bool) Value {
	switch {
	case number != nil:
		return Number(*number)
	case yes != nil:
		return Yes(*yes)
	}
	return Value{}
}

// columns is the reverse of valueOf.
func (v Value) columns() (number *int64, yes *bool) {
	switch v.Kind {
	case Numeric:
		return &v.Number, nil
	case Boolean:
		return nil, &v.Yes
	}
	return nil, nil
}
