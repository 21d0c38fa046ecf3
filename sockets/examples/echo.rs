//! Sends back what it is sent, over TCP, on an interface that stays the kernel's. The names are
//! those of `std::net`; the kernel sees no segment of it.
//!
//! ```text
//! cargo run --release -p wirepath-sockets --example echo -- eth1 192.0.2.1:7     (as root)
//! ```

use std::io::{Read, Write};

use sockets::Stack;
use sockets::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let [_, interface, local] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: echo INTERFACE ADDRESS:PORT".into());
    };
    let stack = Stack::open(interface)?;
    let listener = TcpListener::bind(&stack, local.parse()?)?;
    loop {
        let (mut stream, peer) = listener.accept()?;
        println!("{peer} is connected");
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..count])?;
        }
        println!("{peer} has gone");
    }
}
