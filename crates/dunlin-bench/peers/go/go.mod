module dunlin-bench/peers/go

go 1.22
