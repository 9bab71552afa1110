package day

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"kudos/integration/tier"
	"kudos/schema"
)

// MovieLensDir returns the directory of real input that is not part of the project: ratings.csv.gz of the MovieLens
// latest-small data set of 2016, and the expected counts. Without it a test is skipped, and fails in CI.
func MovieLensDir(t testing.TB) string {
	t.Helper()
	directory := os.Getenv("KUDOS_TEST_DATA")
	if directory == "" {
		tier.Lacks(t, "KUDOS_TEST_DATA is not set: set it to the directory that contains movielens-small/")
	}
	directory = filepath.Join(directory, "movielens-small")
	if _, err := os.Stat(directory); err != nil {
		t.Fatalf("KUDOS_TEST_DATA: %v", err)
	}
	return directory
}

// MovieLens reads ratings (ratings.csv.gz: user, movie, rating, seconds) as events, in file order: a rating of 3.5 or
// more is a like, a lower one withdraws it. user maps users. An event arrives at its time or with the previous one.
func MovieLens(path string, user func(uint64) uint64) (events []Event, err error) {
	rows, err := readCSV(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	arrival := int64(0)
	for i, row := range rows[min(1, len(rows)):] { // after the heading
		e, err := rating(row, user)
		if err != nil {
			return nil, fmt.Errorf("reading %s, row %d: %w", path, i+2, err)
		}
		arrival = max(arrival, e.TimeMs)
		events = append(events, Event{e, arrival})
	}
	return events, nil
}

// EachPerson and ChangingMinds are the two mappings of users: unchanged, and to 60 users who change their reactions.
func EachPerson(id uint64) uint64    { return id }
func ChangingMinds(id uint64) uint64 { return (id+59)%60 + 1 }

func readCSV(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return csv.NewReader(z).ReadAll()
}

func rating(row []string, user func(uint64) uint64) (schema.Event, error) {
	var number [4]float64 // ids and seconds are far below 2^53
	if len(row) != len(number) {
		return schema.Event{}, fmt.Errorf("%d columns", len(row))
	}
	for i, text := range row {
		var err error
		if number[i], err = strconv.ParseFloat(text, 64); err != nil {
			return schema.Event{}, err
		}
	}
	id := uint64(number[0])
	e := schema.Event{PostID: uint64(number[1]), UserID: user(id), Action: schema.Unlike,
		TimeMs: int64(number[3]) * 1000, Region: Regions[id%5]}
	if number[2] >= 3.5 {
		e.Action = schema.Like
	}
	return e, nil
}
