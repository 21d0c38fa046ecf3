//! gRPC's own event engine under the preload library, with sockets of IPv6 that serve IPv4, epoll
//! and eventfd. Needs Python's gRPC, for `make soak`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::Command;

use wirepath_tests::live::preload::{segments_received, start, text, until_it_listens, wire};
use wirepath_tests::live::programs::{Folder, ProcessGuard, runs};
use wirepath_tests::live::{OURS, Program, THEIRS, Wire, wait_until};

/// The distribution's Python: one of pyenv is a program of the shell, and has no gRPC.
const PYTHON: &str = "/usr/bin/python3";
const PORT: u16 = 7_100;

/// An echo: `serve`, or `ask PEER`. It asks by eight channels: messages of several sizes one by
/// one, and streams of them.
const ECHO: &str = r#"
import sys
from concurrent import futures
import grpc

PORT = 7100

def serve():
    class Echo(grpc.GenericRpcHandler):
        def service(self, call):
            if call.method == '/echo/one':
                return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
            if call.method == '/echo/all':
                return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Echo(),))
    if not server.add_insecure_port('[::]:%d' % PORT): sys.exit('no port')
    server.start()
    server.wait_for_termination()

def ask(peer):
    def one(number):
        with grpc.insecure_channel('%s:%d' % (peer, PORT)) as channel:
            unary = channel.unary_unary('/echo/one')
            for size in (0, 1, 1000, 200000):
                sent = bytes([number]) * size
                assert unary(sent, timeout=60, wait_for_ready=True) == sent
            sent = [bytes([number]) * (idx * 100) for idx in range(100)]
            assert list(channel.stream_stream('/echo/all')(iter(sent), timeout=60)) == sent
    with futures.ThreadPoolExecutor(8) as pool: list(pool.map(one, range(8)))
    print('asked all', flush=True)

serve() if sys.argv[1] == 'serve' else ask(sys.argv[2])
"#;

/// A wire and the program.
fn grpc(test: &str) -> Option<(Wire, Folder, String)> {
    let has_grpc = Command::new(PYTHON).args(["-c", "import grpc"]).output().is_ok_and(|said| said.status.success());
    if !has_grpc {
        println!("SKIPPED {test}: there is no gRPC for {PYTHON} here");
        return None;
    }
    let (wire, folder) = (wire(test, &[PYTHON])?, Folder::new());
    let program = folder.write("echo.py", ECHO);
    Some((wire, folder, program))
}

#[test]
#[ignore = "gRPC is large; make soak runs it"]
fn grpc_server_of_ours_answers_eight_channels() {
    let Some((wire, _folder, program)) = grpc("grpc_server_of_ours_answers_eight_channels") else { return };
    let _household = ProcessGuard(&wire);
    let _server = start(&wire, PYTHON, &[&program, "serve"]);
    until_it_listens(&wire, PORT);
    let before = segments_received(&wire.near);
    let said = text(&wire.far.command("timeout", &["240", PYTHON, &program, "ask", &OURS.to_string()]).unwrap());
    assert!(said.contains("asked all"), "{said}");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
#[ignore = "gRPC is large; make soak runs it"]
fn grpc_client_of_ours_asks_by_eight_channels() {
    let Some((wire, _folder, program)) = grpc("grpc_client_of_ours_asks_by_eight_channels") else { return };
    let _household = ProcessGuard(&wire);
    let _server = Program::start(&wire.far, PYTHON, &[&program, "serve"]);
    wait_until("the server listens", || wire.far.run(|| std::net::TcpStream::connect((THEIRS, PORT))).is_ok());
    let before = segments_received(&wire.near);
    runs(&wire, PYTHON, &[&program, "ask", &THEIRS.to_string()], "asked all");
    // The peer may say last words once the client has ended.
    assert!(segments_received(&wire.near) < before + 30, "the kernel got its segments");
}
