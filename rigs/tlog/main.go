// Reads an export of a log with Go's own implementation of transparency logs, and checks every entry.
//
//	go run . FOLDER VKEY
//
// It prints the origin and the number of entries. An error is one line, with exit status 1.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const width = 256

// folder reads a log's files; their paths are those of C2SP's tlog-tiles, without the tile's height.
type folder string

func (f folder) path(level string, number int64, count int) string {
	groups := fmt.Sprintf("%03d", number%1000)
	for number /= 1000; number > 0; number /= 1000 {
		groups = fmt.Sprintf("x%03d/%s", number%1000, groups)
	}
	path := filepath.Join(string(f), "tile", level, groups)
	if count < width {
		path += fmt.Sprintf(".p/%d", count)
	}
	return path
}

func (f folder) Height() int                         { return 8 }
func (f folder) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var data [][]byte
	for _, tile := range tiles {
		bytes, err := os.ReadFile(f.path(fmt.Sprint(tile.L), tile.N, tile.W))
		if err != nil {
			return nil, err
		}
		data = append(data, bytes)
	}
	return data, nil
}

func check(f folder, vkey string) error {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(string(f), "checkpoint"))
	if err != nil {
		return err
	}
	signed, err := note.Open(text, note.VerifierList(verifier))
	if err != nil {
		return err
	}
	// tlog's own form of a checkpoint begins with another line than the origin.
	var origin, root string
	var tree tlog.Tree
	if _, err := fmt.Sscanf(signed.Text, "%s\n%d\n%s\n", &origin, &tree.N, &root); err != nil {
		return err
	}
	if tree.Hash, err = tlog.ParseHash(root); err != nil {
		return err
	}
	if origin != verifier.Name() {
		return fmt.Errorf("the origin %s is not the key's name", origin)
	}
	hashes := tlog.TileHashReader(tree, f)
	for first := int64(0); first < tree.N; first += width {
		count := int(min(width, tree.N-first))
		bundle, err := os.ReadFile(f.path("entries", first/width, count))
		if err != nil {
			return err
		}
		for at := 0; at < count; at++ {
			if len(bundle) < 2 || len(bundle) < 2+int(binary.BigEndian.Uint16(bundle)) {
				return fmt.Errorf("a bundle ends within an entry")
			}
			entry := bundle[2 : 2+binary.BigEndian.Uint16(bundle)]
			bundle = bundle[2+len(entry):]
			number := first + int64(at)
			proof, err := tlog.ProveRecord(tree.N, number, hashes)
			if err != nil {
				return err
			}
			if err := tlog.CheckRecord(proof, tree.N, tree.Hash, number, tlog.RecordHash(entry)); err != nil {
				return fmt.Errorf("entry %d: %w", number, err)
			}
		}
		if len(bundle) != 0 {
			return fmt.Errorf("a bundle has more entries than the tree")
		}
	}
	fmt.Println(origin, tree.N)
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "give the export's folder and the log's public key")
		os.Exit(2)
	}
	if err := check(folder(os.Args[1]), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
