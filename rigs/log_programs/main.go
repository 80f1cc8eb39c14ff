// Independent implementations of C2SP's logs, run against Hushmote's.
//
//	log_programs tessera FOLDER SECRET-KEY WITNESS-URL WITNESS-KEY
//
// keeps a Tessera log in a folder, which the witness must sign. It appends each line of standard input, an entry
// in hex; after an empty line, it prints the size of the signed tree that has them all.
//
//	log_programs read URL LOG-KEY WITNESS-KEY
//
// verifies a log's checkpoint with golang.org/x/mod/sumdb/note and Google's formats, and prints each of its entries in
// hex, whose hashes torchwood checks against the tree.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	"filippo.io/torchwood"
	formats "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	commands := map[string]func(context.Context, []string){"tessera": keepLog, "read": readLog}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("use: log_programs tessera|read ...")
	}
	commands[os.Args[1]](context.Background(), os.Args[2:])
}

func keepLog(ctx context.Context, args []string) {
	folder, secret, address, key := args[0], args[1], args[2], args[3]
	signer, err := note.NewSigner(secret)
	check(err)
	root, err := url.Parse(address)
	check(err)
	witness, err := tessera.NewWitness(key, root)
	check(err)
	driver, err := posix.New(ctx, posix.Config{Path: folder})
	check(err)
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(100*time.Millisecond).
		WithBatching(100, 50*time.Millisecond).
		WithWitnesses(tessera.NewWitnessGroup(1, witness), &tessera.WitnessOptions{Timeout: 5 * time.Second})
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, options)
	check(err)
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 50*time.Millisecond)
	lines := bufio.NewScanner(os.Stdin)
	var last tessera.IndexFuture
	for lines.Scan() {
		entry, err := hex.DecodeString(lines.Text())
		check(err)
		if len(entry) > 0 {
			last = appender.Add(ctx, tessera.NewEntry(entry))
			continue
		}
		_, checkpoint, err := awaiter.Await(ctx, last)
		check(err)
		verifier, err := formats.NewVerifierForCosignatureV1(key)
		check(err)
		signed, err := note.Open(checkpoint, note.VerifierList(verifier))
		check(err)
		tree, err := torchwood.ParseCheckpoint(signed.Text)
		check(err)
		fmt.Println(tree.N)
	}
	check(shutdown(ctx))
}

func readLog(ctx context.Context, args []string) {
	address, logKey, witnessKey := args[0], args[1], args[2]
	fetcher, err := torchwood.NewTileFetcher(address)
	check(err)
	data, err := fetcher.ReadEndpoint(ctx, "checkpoint")
	check(err)
	logVerifier, err := note.NewVerifier(logKey)
	check(err)
	witnessVerifier, err := formats.NewVerifierForCosignatureV1(witnessKey)
	check(err)
	signed, err := note.Open(data, note.VerifierList(logVerifier, witnessVerifier))
	check(err)
	if len(signed.Sigs) != 2 {
		log.Fatalf("%d of 2 signatures", len(signed.Sigs))
	}
	checkpoint, err := torchwood.ParseCheckpoint(signed.Text)
	check(err)
	client, err := torchwood.NewClient(fetcher)
	check(err)
	for next := int64(0); next < checkpoint.N; {
		for index, entry := range client.Entries(ctx, checkpoint.Tree, next) {
			fmt.Println(hex.EncodeToString(entry))
			next = index + 1
		}
		check(client.Err())
	}
}
