// The Go side of dunlin-bench: the same programs as src/programs.rs, with goroutines and unbuffered channels.
//
//	GOMAXPROCS=1 go-peer commstime 250000
//
// Prints one number: nanoseconds per event (per process for spawn), or bytes per goroutine for memory.
// Goroutines that are still blocked when the measuring is over end with the program.
package main

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	benches := map[string]func(n int) float64{
		"commstime":    commstime,
		"pingpong":     pingpong,
		"choice-ready": choiceReady,
		"choice-waits": choiceWaits,
		"ring":         ring,
		"spawn":        spawn,
		"memory":       memory,

		"stressed-alt-8x4":     func(n int) float64 { return stressedAlt(8, 4, n) },
		"stressed-alt-200x100": func(n int) float64 { return stressedAlt(200, 100, n) },
	}
	if len(os.Args) != 3 || benches[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go-peer commstime|pingpong|choice-ready|choice-waits|ring|spawn|memory|stressed-alt-8x4|stressed-alt-200x100 N")
		os.Exit(2)
	}
	n, err := strconv.Atoi(os.Args[2])
	if err != nil || n < 1 {
		fmt.Fprintln(os.Stderr, "N must be a positive number, not", os.Args[2])
		os.Exit(2)
	}
	fmt.Println(benches[os.Args[1]](n))
}

func nanosecondsPer(events int, since time.Time) float64 {
	return float64(time.Since(since).Nanoseconds()) / float64(events)
}

// commstime: prefix -> delta -> successor -> prefix, and delta -> consumer; n cycles of four communications.
func commstime(n int) float64 {
	a, b, c, d := make(chan uint64), make(chan uint64), make(chan uint64), make(chan uint64)
	start := time.Now()
	go func() { // prefix
		a <- 0
		for {
			a <- <-c
		}
	}()
	go func() { // delta, one output after the other
		for {
			v := <-a
			b <- v
			d <- v
		}
	}()
	go func() { // successor
		for {
			c <- <-b + 1
		}
	}()
	for i := range uint64(n) { // consumer
		if v := <-d; v != i {
			panic(fmt.Sprint("expected ", i, ", received ", v))
		}
	}
	return nanosecondsPer(4*n, start)
}

// pingpong: n round trips.
func pingpong(n int) float64 {
	ping, pong := make(chan uint64), make(chan uint64)
	start := time.Now()
	go func() {
		for {
			pong <- <-ping
		}
	}()
	for i := range uint64(n) {
		ping <- i
		if v := <-pong; v != i {
			panic(fmt.Sprint("expected ", i, ", received ", v))
		}
	}
	return nanosecondsPer(n, start)
}

// choiceReady: n choices among eight writers that all want to send all the time.
func choiceReady(n int) float64 {
	var events [8]chan uint64
	for i := range events {
		events[i] = make(chan uint64)
	}
	start := time.Now()
	for _, event := range events {
		go func() {
			for i := uint64(0); ; i++ {
				event <- i
			}
		}()
	}
	for range n {
		choose(&events)
	}
	return nanosecondsPer(n, start)
}

// choiceWaits: n choices among eight writers that pass a turn round; only the one with the turn sends.
func choiceWaits(n int) float64 {
	var events, turns [8]chan uint64
	for i := range events {
		events[i], turns[i] = make(chan uint64), make(chan uint64)
	}
	start := time.Now()
	for i := range events {
		event, mine, next := events[i], turns[i], turns[(i+1)%8]
		go func() {
			for {
				turn := <-mine
				event <- turn
				next <- turn + 1
			}
		}()
	}
	turns[0] <- 0
	for i := range uint64(n) {
		if v := choose(&events); v != i {
			panic(fmt.Sprint("expected ", i, ", received ", v))
		}
	}
	return nanosecondsPer(n, start)
}

// choose takes one value from any of the eight, at random among those that are ready.
func choose(c *[8]chan uint64) uint64 {
	select {
	case v := <-c[0]:
		return v
	case v := <-c[1]:
		return v
	case v := <-c[2]:
		return v
	case v := <-c[3]:
		return v
	case v := <-c[4]:
		return v
	case v := <-c[5]:
		return v
	case v := <-c[6]:
		return v
	case v := <-c[7]:
		return v
	}
}

// stressedAlt: n choices among channels with several writers each, which all want to send all the time; after so many that all
// of them have begun. What a writer sends is its number. Says on standard error who had which share.
func stressedAlt(channels, writers, n int) float64 {
	events := make([]chan uint64, channels)
	for i := range events {
		events[i] = make(chan uint64)
		for w := range writers {
			me, event := uint64(i*writers+w), events[i]
			go func() {
				for {
					event <- me
				}
			}()
		}
	}
	var next func() uint64
	if channels == 8 {
		eight := (*[8]chan uint64)(events)
		next = func() uint64 { return choose(eight) }
	} else {
		cases := make([]reflect.SelectCase, channels)
		for i, event := range events {
			cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(event)}
		}
		next = func() uint64 {
			_, v, _ := reflect.Select(cases)
			return v.Uint()
		}
	}
	for range channels * writers {
		next()
	}
	counts := make([]int, channels*writers)
	start := time.Now()
	for range n {
		counts[next()]++
	}
	ns := nanosecondsPer(n, start)

	ofChannels := make([]int, channels)
	for writer, count := range counts {
		ofChannels[writer/writers] += count
	}
	share := func(count int) float64 { return 100 * float64(count) / float64(n) }
	fmt.Fprintf(os.Stderr, "go: a channel had %.3f to %.3f %% of the events, a writer %.3f to %.3f %%\n",
		share(slices.Min(ofChannels)), share(slices.Max(ofChannels)), share(slices.Min(counts)), share(slices.Max(counts)))
	return ns
}

// ring: n goroutines in a ring, one token; after one round that warms up, at least a million hops.
func ring(n int) float64 {
	first := make(chan uint64)
	last := first
	for range n - 1 {
		in, out := last, make(chan uint64)
		go func() {
			for {
				out <- <-in
			}
		}()
		last = out
	}
	round := func() {
		first <- 0
		<-last
	}
	round()
	rounds := max(1, 1_000_000/n)
	start := time.Now()
	for range rounds {
		round()
	}
	return nanosecondsPer(rounds*n, start)
}

// spawn: n goroutines that end at once, until all have ended.
func spawn(n int) float64 {
	var all sync.WaitGroup
	all.Add(n)
	start := time.Now()
	for range n {
		go all.Done()
	}
	all.Wait()
	return nanosecondsPer(n, start)
}

// memory: bytes that the runtime obtained from the system for each goroutine that is parked on its own channel.
func memory(n int) float64 {
	// The other ends, made and touched beforehand, so that they do not count.
	ends := make([]chan uint64, n)
	var parked atomic.Int64
	before := sys()
	for i := range ends {
		end := make(chan uint64)
		ends[i] = end
		go func() {
			parked.Add(1)
			<-end
		}()
	}
	for parked.Load() < int64(n) {
		runtime.Gosched()
	}
	bytes := sys() - before
	runtime.KeepAlive(ends)
	return float64(bytes) / float64(n)
}

func sys() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Sys
}
