package lockview

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bursarhq/bursar/lockorder"
)

// Halves returns the two numbers that pg_locks shows of a 64-bit key: the high half as classid, the low half as objid;
// objsubid is 1 then.
func Halves(key int64) (classid, objid uint32) { return uint32(uint64(key) >> 32), uint32(uint64(key)) }

// Join is the key of the two halves.
func Join(classid, objid uint32) int64 { return int64(uint64(classid)<<32 | uint64(objid)) }

// ParseKey reads a key as a person has it at hand: a bigint, with its sign, or the pair classid/objid of pg_locks.
func ParseKey(text string) (int64, error) {
	high, low, pair := strings.Cut(text, "/")
	if !pair {
		key, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no key: give the number (-9104575358558129625), or classid and objid of pg_locks (2175143155/308163111)", text)
		}
		return key, nil
	}
	classid, err := strconv.ParseUint(strings.TrimSpace(high), 10, 32)
	if err == nil {
		var objid uint64
		if objid, err = strconv.ParseUint(strings.TrimSpace(low), 10, 32); err == nil {
			return Join(uint32(classid), uint32(objid)), nil
		}
	}
	return 0, fmt.Errorf("%q is no pair of classid and objid: each is a whole number from 0 to 4294967295, as pg_locks shows it", text)
}

// fixed are the locks of Bursar's whose keys need no identity from a table.
var fixed = func() map[int64]lockorder.Lock {
	m := map[int64]lockorder.Lock{}
	for _, class := range lockorder.Classes() {
		if class.Kind == lockorder.Advisory && len(class.Identity) == 0 {
			l := lockorder.New(class)
			m[l.Key()] = l
		}
	}
	migration := lockorder.MigrationKey("bursar") // as package db takes it
	m[migration.Key()] = migration
	return m
}()
