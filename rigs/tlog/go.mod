module hushmote/rigs/tlog

go 1.22.0

require golang.org/x/mod v0.21.0
