// Command lockordervet checks that transactions and locks go through package lockorder and keep its order. It runs under go vet,
// and reads SQL files by itself:
//
//	go vet -vettool=$(which lockordervet) ./...
//	lockordervet sql [FOLDER…]
//
// It exits with 0 where it finds nothing, 1 where it finds something, and 2 where it cannot look.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/bursarhq/bursar/lockorder/lockordervet"
	"github.com/bursarhq/bursar/lockorder/lockordervet/sqltext"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sql" {
		os.Exit(checkSQL(os.Stdout, os.Stderr, os.Args[2:]))
	}
	unitchecker.Main(lockordervet.Analyzer)
}

// checkSQL reads the SQL files below folders, by default the one it runs in, and answers the exit code.
func checkSQL(stdout, stderr io.Writer, folders []string) int {
	if len(folders) == 0 {
		folders = []string{"."}
	}
	code := 0
	for _, folder := range folders {
		found, files, err := sqltext.Files(os.DirFS(folder))
		switch {
		case err != nil:
			fmt.Fprintf(stderr, "lockordervet: %s cannot be read: %v\n", folder, err)
			return 2
		case files == 0:
			fmt.Fprintf(stderr, "lockordervet: there is no .sql file below %s: name the folder that holds them\n", folder)
			return 2
		}
		for _, f := range found {
			f.File = filepath.Join(folder, f.File)
			fmt.Fprintln(stdout, f)
			code = 1
		}
	}
	return code
}
