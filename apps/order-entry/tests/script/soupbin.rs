//! SoupBinTCP's ends in scripts.
//!
//! `machine client`: `do connect SESSION NUMBER` (`-` is blank), `do reconnect`, `do send TEXT`,
//! `do sent`, `do debug TEXT`, `do logout`, `do disconnected`.
//! `machine server`: `do connected`, `do accept SESSION NUMBER`, `do reject A`, `do judge SESSION
//! NEXT` (against alice and secret), `do send TEXT`, `do unsequenced TEXT`, `do debug TEXT`, `do
//! end`.

use order_entry::session::{Escaped, Output};
use order_entry::soupbin::{
    Client, ClientConfig, ClientEvent, Credentials, LoginRejectReason, LoginRequest, Server, ServerConfig, ServerEvent,
    SessionId, judge_login,
};

use super::Machine;

pub(crate) fn machine(words: &[&str]) -> Box<dyn Machine> {
    let packet_len_max = words.iter().find_map(|word| word.strip_prefix("packet_len_max="));
    let packet_len_max = packet_len_max.map_or(65_537, |len| len.parse().unwrap());
    match words[0] {
        "client" => {
            let config = ClientConfig { packet_len_max, ..ClientConfig::new(credentials()) };
            Box::new(Client::new(config))
        }
        "server" => {
            let server = Server::new(ServerConfig { packet_len_max, ..ServerConfig::default() });
            Box::new(ServerUnderTest { server, login: None })
        }
        other => panic!("{other} is no machine"),
    }
}

fn credentials() -> Credentials {
    Credentials::new("alice", "secret").unwrap()
}

fn session(word: &str) -> SessionId {
    SessionId::new(word.trim_matches('-')).unwrap()
}

impl Machine for Client {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        match *words {
            ["connect", name, number] => self.connect(now_ns, session(name), number.parse().unwrap(), output),
            ["reconnect"] => self.reconnect(now_ns, output),
            ["send", text] => self.send(now_ns, text.as_bytes(), output),
            ["sent"] => self.sent(now_ns),
            ["debug", text] => self.send_debug(now_ns, text.as_bytes(), output),
            ["logout"] => self.logout(now_ns, output),
            ["disconnected"] => {
                self.disconnected();
                Ok(())
            }
            _ => panic!("no such call: {words:?}"),
        }
        .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8], _: &mut Output<'_>) -> Result<Option<String>, String> {
        let event = Client::receive(self, now_ns, input).map_err(|error| error.to_string())?;
        Ok(event.map(|event| match event {
            ClientEvent::LoggedIn { session, next, start } => format!("LoggedIn {session} {next} {start:?}"),
            ClientEvent::Sequenced { number, message } => format!("Sequenced {number} {}", Escaped(message)),
            ClientEvent::Unsequenced(message) => format!("Unsequenced {}", Escaped(message)),
            ClientEvent::Debug(text) => format!("Debug {}", Escaped(text)),
            other => format!("{other:?}"),
        }))
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String> {
        Client::tick(self, now_ns, output).map_err(|error| error.to_string())
    }

    fn deadline_ns(&self) -> Option<u64> {
        Client::deadline_ns(self)
    }
}

struct ServerUnderTest {
    server: Server,
    login: Option<LoginRequest>,
}

impl Machine for ServerUnderTest {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        let server = &mut self.server;
        match *words {
            ["connected"] => {
                server.connected(now_ns);
                Ok(())
            }
            ["accept", name, number] => server.accept(now_ns, session(name), number.parse().unwrap(), output),
            ["reject", reason] => server.reject(now_ns, LoginRejectReason::from_wire(reason.as_bytes()[0]), output),
            ["judge", name, next] => {
                let login = self.login.take().expect("a login");
                match judge_login(&login, &credentials(), session(name), next.parse().unwrap()) {
                    Ok(first) => server.accept(now_ns, session(name), first, output),
                    Err(reason) => server.reject(now_ns, reason, output),
                }
            }
            ["send", text] => server.send(now_ns, text.as_bytes(), output).map(drop),
            ["unsequenced", text] => server.send_unsequenced(now_ns, text.as_bytes(), output),
            ["debug", text] => server.send_debug(now_ns, text.as_bytes(), output),
            ["end"] => server.end_session(now_ns, output),
            _ => panic!("no such call: {words:?}"),
        }
        .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8], _: &mut Output<'_>) -> Result<Option<String>, String> {
        let event = self.server.receive(now_ns, input).map_err(|error| error.to_string())?;
        Ok(event.map(|event| match event {
            ServerEvent::Login(login) => {
                self.login = Some(login);
                let (user, session) = (Escaped(login.username.trim_ascii_end()), SessionId::from_wire(login.session));
                format!("Login {user} {session} {}", login.number.get().unwrap())
            }
            ServerEvent::Unsequenced(message) => format!("Unsequenced {}", Escaped(message)),
            ServerEvent::Debug(text) => format!("Debug {}", Escaped(text)),
            other => format!("{other:?}"),
        }))
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String> {
        self.server.tick(now_ns, output).map_err(|error| error.to_string())
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.server.deadline_ns()
    }
}
