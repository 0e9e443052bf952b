// Package app uses a lockorder of its own.
package app

import (
	"net/http"

	"example.org/forked/lockorder"
)

func run(tx *lockorder.Tx) {
	http.Get("") // want `network: http.Get`
}
