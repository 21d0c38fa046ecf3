//! Programs under the preload library that fill a disk when they are installed: for `make soak`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use wirepath_tests::live::preload::{
    echo, is_listening, segments_received, text, under_library, until_it_listens, wire,
};
use wirepath_tests::live::{OURS, Program, THEIRS, Wire, wait_until};

use wirepath_tests::live::programs::{Folder, ProcessGuard, fetch, is_echoed, runs, serve_pages};

const NODE: &str = r#"
const net = require('net'), http = require('http');
const [peer] = process.argv.slice(2);
net.createServer(socket => { socket.on('error', () => {}); socket.pipe(socket); }).listen(7100);
http.createServer((request, response) => response.end('x'.repeat(100000))).listen(8080, () => {
  // It asks a server of the kernel meanwhile, by twenty connections.
  let left = 20;
  for (let number = 0; number < 20; number++) {
    const sent = `request ${number} `.repeat(2000);
    let got = '';
    const socket = net.connect(7000, peer, () => socket.write(sent));
    socket.on('data', bytes => {
      got += bytes;
      if (got.length < sent.length) return;
      if (got !== sent) throw new Error('other bytes');
      socket.end();
      if (--left === 0) fetchAll();
    });
  }
});
// And fetches pages of one, by two connections that it keeps.
function fetchAll() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 2 }), ports = new Set();
  let left = 20;
  for (let number = 0; number < 20; number++) {
    http.get({ host: peer, port: 8081, agent }, response => {
      let len = 0;
      ports.add(response.socket.localPort);
      response.on('data', bytes => len += bytes.length);
      response.on('end', () => {
        if (len !== 100000) throw new Error('other bytes');
        if (--left === 0) console.log(`asked all, by ${ports.size} connections`);
      });
    });
  }
}
process.stdin.on('data', () => { console.log('ends'); process.exit(0); });
"#;

const JAVA: &str = r#"
import java.net.*;
import java.nio.*;
import java.nio.channels.*;

public class Echo {
    public static void main(String[] arguments) throws Exception {
        try (SocketChannel out = SocketChannel.open(new InetSocketAddress(arguments[0], 7000))) {
            ByteBuffer sent = ByteBuffer.allocate(100_000), got = ByteBuffer.allocate(100_000);
            while (sent.hasRemaining()) { sent.put((byte) (sent.position() * 7)); }
            Thread writer = new Thread(() -> { try { ByteBuffer all = sent.duplicate().flip(); while (all.hasRemaining()) out.write(all); } catch (Exception e) { throw new RuntimeException(e); } });
            writer.start();
            while (got.hasRemaining() && out.read(got) >= 0) { }
            if (!got.flip().equals(sent.flip())) throw new IllegalStateException("other bytes");
            writer.join();
        }
        System.out.println("asked");
        Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open().bind(new InetSocketAddress(7100));
        server.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel client = server.accept();
                    client.configureBlocking(false).register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(65536));
                    continue;
                }
                SocketChannel client = (SocketChannel) key.channel();
                ByteBuffer bytes = (ByteBuffer) key.attachment();
                if (key.isReadable() && client.read(bytes) < 0) { client.close(); continue; }
                bytes.flip();
                client.write(bytes);
                key.interestOps(bytes.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
                bytes.compact();
            }
            selector.selectedKeys().clear();
        }
    }
}
"#;

/// What a program writes, in a file, so that it can be looked at while the program runs.
fn start_into(wire: &Wire, said: &Path, program: &str, arguments: &[&str]) -> Program {
    let script = format!("exec {} > {} 2>&1", under_library(program, arguments).join(" "), said.display());
    Program::start(&wire.near, "sh", &["-c", &script])
}

fn until_it_says(said: &Path, word: &str) {
    let read = || std::fs::read_to_string(said).unwrap_or_default();
    wait_until(&format!("it says {word:?}"), || {
        assert!(!read().contains("Error") && !read().contains("Exception"), "{}", read());
        read().contains(word)
    });
}

#[test]
#[ignore = "node is large; make soak runs it"]
fn node_serves_and_asks_by_net_and_http() {
    let test = "node_serves_and_asks_by_net_and_http";
    let Some(wire) = wire(test, &["node"]) else { return };
    echo(&wire);
    serve_pages(&wire, 8_081, 100_000);
    let folder = Folder::new();
    let before = segments_received(&wire.near);
    let (program, said) = (folder.write("program.js", NODE), folder.path().join("said"));
    let _node = start_into(&wire, &said, "node", &[&program, &THEIRS.to_string()]);
    until_it_says(&said, "asked all, by 2 connections");
    is_echoed(&wire, 7_100, 20);
    assert_eq!(fetch(&wire, 8_080).len(), 100_000);
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
#[ignore = "a JDK is large; make soak runs it"]
fn java_nio_asks_and_echoes() {
    let test = "java_nio_asks_and_echoes";
    let Some(wire) = wire(test, &["java"]) else { return };
    echo(&wire);
    let folder = Folder::new();
    let (program, said) = (folder.write("Echo.java", JAVA), folder.path().join("said"));
    let _java = start_into(&wire, &said, "java", &["-Xmx256m", &program, &THEIRS.to_string()]);
    until_it_says(&said, "asked");
    until_it_listens(&wire, 7_100);
    let before = segments_received(&wire.near);
    is_echoed(&wire, 7_100, 20);
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

/// The folder of PostgreSQL's server, which Debian keeps out of PATH.
fn postgres_folder(test: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let found = folders.find(|folder| folder.join("postgres").is_file());
    if found.is_none() {
        println!("SKIPPED {test}: there is no PostgreSQL server here");
    }
    found
}

/// A database that trusts whoever calls, of the user that PostgreSQL's package made: its server
/// does not run as root.
fn database(wire: &Wire, programs: &Path, folder: &Path) -> PathBuf {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let data = folder.join("data");
    let initdb = programs.join("initdb");
    let arguments =
        ["-u", "postgres", "--", initdb.to_str().unwrap(), "--no-sync", "-A", "trust", "-D", data.to_str().unwrap()];
    let made = wire.far.command("runuser", &arguments).unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let trust = "host all all 10.9.0.0/24 trust\nhost all all 127.0.0.0/8 trust\n";
    std::fs::write(data.join("pg_hba.conf"), trust).unwrap();
    data
}

fn server(programs: &Path, data: &Path) -> Vec<String> {
    let settings = ["listen_addresses=*", "port=5400", "fsync=off", "unix_socket_directories="];
    let mut line = vec![programs.join("postgres").display().to_string(), "-D".into(), data.display().to_string()];
    line.extend(settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
    line
}

const QUERY: &str = "create table prices as select g, repeat('x', 100) from generate_series(1, 20000) g; \
                     select * from prices; drop table prices; select 'all ' || 'done';";

fn ask(host: &str) -> Vec<String> {
    ["-X", "-h", host, "-p", "5400", "-U", "postgres", "-d", "postgres", "-c", QUERY].map(str::to_owned).to_vec()
}

fn has_all(output: &Output) {
    assert!(output.status.success() && text(output).contains("all done"), "{}", text(output));
    assert!(output.stdout.len() > 20_000 * 100, "{} bytes", output.stdout.len());
}

#[test]
#[ignore = "PostgreSQL is large; make soak runs it"]
fn psql_asks_a_postgresql_of_the_kernel() {
    let test = "psql_asks_a_postgresql_of_the_kernel";
    let Some(programs) = postgres_folder(test) else { return };
    let Some(wire) = wire(test, &["psql", "runuser"]) else { return };
    let _household = ProcessGuard(&wire);
    let folder = Folder::new();
    let data = database(&wire, &programs, folder.path());
    let line = [vec!["-u".into(), "postgres".into(), "--".into()], server(&programs, &data)].concat();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let _postgres = Program::start(&wire.far, "runuser", &line);
    wait_until("the server listens", || wire.far.run(|| std::net::TcpStream::connect((THEIRS, 5_400))).is_ok());
    let question = ask(&THEIRS.to_string());
    let question: Vec<&str> = question.iter().map(String::as_str).collect();
    let before = segments_received(&wire.near);
    has_all(&runs(&wire, "psql", &question, "all done"));
    assert!(segments_received(&wire.near) < before + 10, "the kernel got its segments");
}

/// The server makes a process for each connection that it has accepted, which ours cannot serve: a
/// rule leaves it to the kernel, and it runs unharmed.
#[test]
#[ignore = "PostgreSQL is large; make soak runs it"]
fn postgresql_serves_where_a_rule_leaves_it_to_the_kernel() {
    let test = "postgresql_serves_where_a_rule_leaves_it_to_the_kernel";
    let Some(programs) = postgres_folder(test) else { return };
    let Some(wire) = wire(test, &["psql", "setpriv"]) else { return };
    let _household = ProcessGuard(&wire);
    let folder = Folder::new();
    let data = database(&wire, &programs, folder.path());
    let rules = folder.write("rules.toml", "[[rules]]\nuse = \"os\"\ntraffic = \"tcp-server\"\n");
    let line = server(&programs, &data);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let environment = under_library(line[0], &line[1..]);
    let rules = format!("WIREPATH_RULES={rules}");
    // With the rights that AF_XDP needs, as `AmbientCapabilities=` of systemd gives them.
    let rights = "+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";
    let mut arguments = vec!["--reuid", "postgres", "--regid", "postgres", "--init-groups"];
    arguments.extend(["--inh-caps", rights, "--ambient-caps", rights, "env", &rules]);
    arguments.extend(environment[1..].iter().map(String::as_str));
    let _postgres = Program::start(&wire.near, "setpriv", &arguments);
    until_it_listens(&wire, 5_400);
    let question = ask(&OURS.to_string());
    let question: Vec<&str> = question.iter().map(String::as_str).collect();
    has_all(&wire.far.command("psql", &question).unwrap());
}

/// A database of root's, whose server takes whoever calls.
fn mariadb(wire: &Wire, folder: &Path) -> Program {
    let data = format!("--datadir={}/data", folder.display());
    let makes = ["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db", &data];
    let made = wire.near.command("mariadb-install-db", &makes).unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let socket = format!("--socket={}/socket", folder.display());
    let listens = ["--skip-grant-tables", "--skip-networking=0", "--bind-address=0.0.0.0", "--port=5500"];
    start_into(
        wire,
        &folder.join("said"),
        "mariadbd",
        &[&["--no-defaults", "--user=root", &data, &socket], &listens[..]].concat(),
    )
}

#[test]
#[ignore = "MariaDB is large; make soak runs it"]
fn mariadb_with_a_thread_for_each_connection_answers_past_the_kernel() {
    let test = "mariadb_with_a_thread_for_each_connection_answers_past_the_kernel";
    let Some(wire) = wire(test, &["mariadbd", "mariadb-install-db", "mariadb"]) else { return };
    let _household = ProcessGuard(&wire);
    let folder = Folder::new();
    let _mariadb = mariadb(&wire, folder.path());
    wait_until("the server listens", || is_listening(&wire.near, 5_500));
    let (before, host) = (segments_received(&wire.near), OURS.to_string());
    let rows = "select seq, repeat('x', 100) from seq_1_to_20000";
    let client = ["--no-defaults", "-h", &host, "-P", "5500", "-u", "root", "-D", "mysql", "-N", "-e", rows];
    std::thread::scope(|scope| {
        let ask = || wire.far.command("mariadb", &client).unwrap();
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        for client in clients {
            let output = client.join().unwrap();
            let lines = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.ends_with("xxx")).count();
            assert_eq!(lines, 20_000, "{}", String::from_utf8_lossy(&output.stderr));
        }
    });
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}
