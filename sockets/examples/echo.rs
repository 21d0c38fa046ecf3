//! A TCP echo server on an interface that the kernel keeps. The calls have the names of `std::net`,
//! and the kernel sees none of the segments.
//!
//! ```text
//! cargo run --release -p wirepath-sockets --example echo -- eth1 192.0.2.1:7     (as root)
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::process::ExitCode;

use sockets::Stack;
use sockets::net::TcpListener;

fn main() -> ExitCode {
    let Err(error) = serve(&std::env::args().skip(1).collect::<Vec<_>>());
    eprintln!("echo: {error}");
    ExitCode::FAILURE
}

fn serve(arguments: &[String]) -> Result<std::convert::Infallible, Box<dyn Error + Send + Sync>> {
    let [interface, local] = arguments else { return Err("usage: echo INTERFACE ADDRESS:PORT".into()) };
    let local: SocketAddrV4 =
        local.parse().map_err(|_| format!("{local:?} is no address and port, such as 192.0.2.1:7"))?;
    let stack = Stack::open(interface)?;
    let listener = TcpListener::bind(&stack, local).map_err(|error| format!("{local} on {interface}: {error}"))?;
    loop {
        let (mut stream, peer) = listener.accept()?;
        println!("{peer} is connected");
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            // A client that has gone ends only its own connection.
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        println!("{peer} has gone");
    }
}
