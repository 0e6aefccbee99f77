package demo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// command is how one of our programs is started in the way that this one was.
func command(program string) string {
	exe, err := os.Executable()
	if err != nil {
		exe = ""
	}
	return commandAs(program, os.Args[0], exe, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// ofGoRun are the folders in which "go run" has a program: one for the time, or one of the cache.
var ofGoRun = regexp.MustCompile(`(^|/)go-build[0-9]*/|/[0-9a-f]{64}-d/`)

// commandAs is command for a process that was started as name and is the file exe.
func commandAs(program, name, exe string, exists func(string) bool) string {
	if ofGoRun.MatchString(filepath.ToSlash(exe)) {
		if exists(filepath.Join("cmd", program)) {
			return "go run ./cmd/" + program
		}
		return "go run github.com/slicer-project/slicer/cmd/" + program
	}
	// By a path: the other is beside it.
	if beside := filepath.Join(filepath.Dir(name), program); strings.ContainsRune(name, filepath.Separator) && exists(beside) {
		return beside
	}
	return program
}
