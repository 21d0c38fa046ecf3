//! The header for C, compiled as C and as C++, reads what the writer wrote.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use market::event::{Add, Event, System};
use market::{Locate, OrderRef, Price, Side, Symbol};
use market_ring::{Flags, Quote, Record, RingConfig, RingWriter};

/// Compiles the reader; `None`, and a word why, where there is no such compiler.
fn compile(test: &str, compiler: &str, flags: &[&str], folder: &Path) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(compiler);
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-I"]).arg(root.join("include"));
    command.args(["-x", if compiler == "c++" { "c++" } else { "c" }]).arg(root.join("tests/reader.c"));
    match command.arg("-o").arg(&program).output() {
        Err(error) => {
            println!("SKIPPED {test}: {compiler}: {error}");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

struct Reader {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Reader {
    fn start(program: &Path, ring: &Path) -> Self {
        let mut child = Command::new(program).arg(ring).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn rest(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        text
    }
}

fn add(number: u64) -> Record {
    let event = Event::Add(Add {
        locate: Locate(7),
        side: Side::Sell,
        qty: 100,
        at_ns: 1,
        order: OrderRef(number),
        price: Price(-12_345),
        symbol: Symbol::new("AAPL").unwrap(),
    });
    Record { channel: 3, flags: Flags::STALE, ..Record::new(number, event) }
}

fn program_reads_the_ring(test: &str, compiler: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, compiler, flags, folder.path()) else { return };
    let path = folder.path().join("ring");
    assert_eq!(Reader::start(&program, &path).rest(), "No such file or directory\n");
    std::fs::write(&path, [1; 8_192]).unwrap();
    assert_eq!(Reader::start(&program, &path).rest(), "Protocol error\n");
    std::fs::remove_file(&path).unwrap();
    let mut writer =
        RingWriter::create(&path, &RingConfig { records: 8, quotes: 64, ..RingConfig::default() }).unwrap();
    (0..6).for_each(|number| _ = writer.publish(&add(number)));
    let mut reader = Reader::start(&program, &path);
    assert_eq!(reader.line(), "reading\n");
    writer.publish(&Record::new(6, Event::System(System { code: b'C', at_ns: 2 })));
    let quote = Quote {
        symbol: Symbol::new("MSFT").unwrap(),
        bid_px: Price(1),
        bid_qty: 2,
        ask_px: Price(3),
        ask_qty: 4,
        ..Quote::default()
    };
    writer.update(9, &quote);
    // What a killed writer leaves: a file that is not closed, and that nobody has locked.
    let killed = folder.path().join("killed");
    std::fs::copy(&path, &killed).unwrap();
    drop(writer);
    let lines: String = (2..6)
        .map(|number| {
            format!(
                "record {number}: venue {number}, kind 1, flags 8, channel 3, locate 7, S AAPL    , \
                 order {number}, 100 at -12345\n"
            )
        })
        .collect();
    let last = "record 6: venue 6, kind 13, flags 1, channel 0, locate 0, \0 \0, order 0, 0 at 0\n";
    let last = last.replace("\0 \0", "\0 ");
    let quotes = "quote 9: 1 updates, MSFT     2 at 1, 4 at 3\n";
    assert_eq!(reader.rest(), format!("joined behind 0 to 1\n{lines}{last}{quotes}"));
    assert!(Reader::start(&program, &killed).rest().ends_with(&format!("{last}the writer is gone\n")));
}

#[test]
fn program_in_c_reads_the_ring() {
    program_reads_the_ring("program_in_c_reads_the_ring", "cc", &["-std=gnu11"]);
}

#[test]
fn program_in_cpp_reads_the_ring() {
    program_reads_the_ring("program_in_cpp_reads_the_ring", "c++", &["-std=gnu++17"]);
}
