"""Conformance of a server to HTTP/2 (RFC 9113) and HPACK (RFC 7541), seen from outside.

A raw peer talks to a real server over a TCP socket: it writes frames by hand, so that it can break
every rule, and it holds whatever the server sends against the rules for servers. There is one
server for all tests of a worker, and one connection for each test; when a test has made the server
end a stream or a connection, another connection must still be served afterwards.

By default the server is ours. To judge another one, or the suite itself, name one that speaks
HTTP/2 with prior knowledge and answers `GET /` with a body of at least five bytes:

    LEASEHOLD_HTTP2_TARGET=127.0.0.1:8080 pytest tests/http2

Tests that need a gRPC service are skipped then.

Where the RFC fixes an error code, the code is demanded; where it leaves a choice, the test names
the choice. A stream error may always be answered as a connection error (RFC 9113, 5.4.2).

| module      | what it has                                                  |
|-------------|--------------------------------------------------------------|
| `wire`      | frames: their numbers, how they are written and read         |
| `blocks`    | header blocks: those of requests, and HPACK written by hand  |
| `conduct`   | the rules that every frame of a server must keep             |
| `peer`      | a connection, and what can be expected of it                 |
| `calls`     | calls of our gRPC services                                   |
"""
