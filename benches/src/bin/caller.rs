//! A program as any other, which knows nothing of wirepath: it runs on the kernel's sockets, and
//! under the preload library on ours. Prints its figure as `name number`.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use wirepath_benches::live::in_step;
use wirepath_benches::live::multicast::{self, PollMode};

const USAGE: &str = "caller: choose one of: multicast CORE MILLISECONDS, accept PORT, hold PORT, \
                     connect ADDRESS COUNT, datagrams calls|app NAMESPACE, answers calls|app NAMESPACE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("caller: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    match *words {
        ["multicast", core, milliseconds] => {
            let window = Duration::from_millis(milliseconds.parse()?);
            let reception = multicast::by_calls(core.parse()?, PollMode::Pause, window)?;
            println!("cpu {}\nrate {}", reception.cpu, reception.rate);
        }
        ["accept", port] => accept(port.parse()?, false)?,
        ["hold", port] => accept(port.parse()?, true)?,
        ["connect", to, count] => println!("rate {}", connect(to.parse()?, count.parse()?)?),
        ["datagrams", "calls", near] => println!("ns {}", in_step::datagrams_by_calls(near)?),
        ["datagrams", "app", near] => println!("ns {}", in_step::datagrams_by_app(near)?),
        ["answers", "calls", near] => println!("ns {}", in_step::answers_by_calls(near)?),
        ["answers", "app", near] => println!("ns {}", in_step::answers_by_app(near)?),
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// Accepts connections for ever, and keeps them open or closes them at once.
fn accept(port: u16, keeps: bool) -> std::io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    let mut kept = Vec::new();
    for stream in listener.incoming() {
        kept.extend(keeps.then_some(stream?));
    }
    Ok(())
}

/// Connections a second that are made and closed, one after the other. The first is not counted:
/// for it the library opens the interface, once for a program.
fn connect(to: SocketAddr, count: u32) -> std::io::Result<f64> {
    connect_once(to)?;
    let start = Instant::now();
    for _ in 0..count {
        connect_once(to)?;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// The server closes first, and has the connection in TIME-WAIT.
fn connect_once(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(())
}
