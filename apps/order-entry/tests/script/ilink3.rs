//! iLink 3's ends in scripts. The wall's clock is the script's.
//!
//! `machine client`: `do negotiate UUID`, `do establish`, `do resume UUID NEXT EXPECTED`, `do send`
//! (a cancel of spaces), `do again NUMBER`, `do skip`, `do request FROM COUNT [UUID]`, `do fate
//! NUMBER` (an error with the fate), `do terminate`, `do disconnected`. `machine server`: `do
//! connected`, `do accept` (what is asked), `do reject`, `do send` (a status of 16 spaces under
//! template 522), `do follow` (messages that were asked for), `do again NUMBER`, `do refuse`, `do
//! terminate CODE`, `do tick`.

use order_entry::Text;
use order_entry::ilink3::{
    CancelOrder, Client, ClientConfig, ClientEvent, Identity, Key, Missing, RetransmitRequest, Server, ServerConfig,
    ServerEvent,
};
use order_entry::session::{Escaped, Output, Recovery};

use zerocopy::FromZeros;

use super::Machine;

pub(crate) fn machine(words: &[&str]) -> Box<dyn Machine> {
    if words[0] == "server" {
        let server = Server::new(ServerConfig::default());
        return Box::new(ServerUnderTest { server, asked: "", request: RetransmitRequest::new_zeroed() });
    }
    Box::new(Client::new(ClientConfig::new(Identity {
        session: Text::new("ABC").unwrap(),
        firm: Text::zero_padded("FIRM").unwrap(),
        access_key: Text::zero_padded("ACCESS").unwrap(),
        key: Key::from_bytes(b"secret-key_123"),
        system: Text::zero_padded("wirepath").unwrap(),
        system_version: Text::zero_padded("1.0").unwrap(),
        system_vendor: Text::zero_padded("wirepath").unwrap(),
    })))
}

fn number<T: std::str::FromStr>(word: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    word.parse().unwrap()
}

fn show_missing(missing: Option<Missing>) -> String {
    missing.map(|missing| format!(" missing {}+{}", missing.from, missing.count)).unwrap_or_default()
}

const CANCEL: [u8; CancelOrder::LEN] = [b' '; CancelOrder::LEN];

impl Machine for Client {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        match *words {
            ["negotiate", uuid] => self.negotiate(now_ns, now_ns, number(uuid), output),
            ["establish"] => self.establish(now_ns, now_ns, output),
            ["resume", uuid, next, expected] => {
                self.resume(number(uuid), number(next), number(expected));
                Ok(())
            }
            ["send"] => self.send(now_ns, CancelOrder::KIND, &CANCEL, &[], output).map(drop),
            ["again", of] => self.send_again(now_ns, number(of), CancelOrder::KIND, &CANCEL, &[], output),
            ["skip"] => self.skip(now_ns, output),
            ["request", from, count] => {
                let missing = Missing { from: number(from), count: number(count) };
                self.request_retransmit(now_ns, now_ns, missing, None, output)
            }
            ["request", from, count, uuid] => {
                let missing = Missing { from: number(from), count: number(count) };
                self.request_retransmit(now_ns, now_ns, missing, Some(number(uuid)), output)
            }
            ["fate", of] => return Err(format!("{:?}", self.fate(number(of)))),
            ["terminate"] => self.terminate(now_ns, now_ns, 0, output),
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
            ClientEvent::Negotiated { .. } => "Negotiated".into(),
            ClientEvent::Refused { error, reason, next } => format!("Refused {error} {reason} {next:?}"),
            ClientEvent::Established { missed_before: Some((uuid, Missing { from, count })), .. } => {
                format!("Established missing before {uuid} {from}+{count}")
            }
            ClientEvent::Established { missed, .. } => format!("Established{}", show_missing(missed)),
            ClientEvent::Message { number, frame, missing, is_retransmitted } => {
                let again = if is_retransmitted { " again" } else { "" };
                let text = Escaped(frame.block[12..].trim_ascii());
                format!("Message {number} {} {text}{}{again}", frame.template, show_missing(missing))
            }
            ClientEvent::KeepAlive { missing, is_lapsed } => format!("KeepAlive {is_lapsed}{}", show_missing(missing)),
            ClientEvent::NotApplied(missing) => format!("NotApplied{}", show_missing(Some(missing))),
            ClientEvent::Retransmission(missing) => format!("Retransmission{}", show_missing(Some(missing))),
            ClientEvent::RetransmitRejected { error, reason } => format!("RetransmitRejected {error} {reason}"),
            ClientEvent::Terminated { error, reason } => format!("Terminated {error} {reason}"),
            other => format!("{other:?}"),
        }))
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String> {
        Client::tick(self, now_ns, now_ns, output).map_err(|error| error.to_string())
    }

    fn deadline_ns(&self) -> Option<u64> {
        Client::deadline_ns(self)
    }
}

struct ServerUnderTest {
    server: Server,
    asked: &'static str,
    /// The last request for messages again.
    request: RetransmitRequest,
}

impl Machine for ServerUnderTest {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        let server = &mut self.server;
        match *words {
            ["connected"] => {
                server.connected(now_ns);
                Ok(())
            }
            ["accept"] if self.asked == "negotiate" => server.accept_negotiation(output),
            ["accept"] => server.accept_establishment(now_ns, output),
            ["reject"] if self.asked == "negotiate" => server.reject_negotiation(1, &Text([0; 48]), output),
            ["reject"] => server.reject_establishment(1, &Text([0; 48]), output),
            ["send"] => server.send(now_ns, 522, &[b' '; 16], &[], output).map(drop),
            ["follow"] => server.begin_retransmission(now_ns, &self.request, output),
            ["again", of] => server.send_again(now_ns, number(of), 522, &[b' '; 16], &[], output),
            ["refuse"] => server.reject_retransmission(now_ns, &self.request, 1, &Text([0; 48]), output),
            ["terminate", code] => server.terminate(now_ns, number(code), output),
            ["tick"] => server.tick(now_ns, output),
            _ => panic!("no such call: {words:?}"),
        }
        .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8], _: &mut Output<'_>) -> Result<Option<String>, String> {
        let event = self.server.receive(now_ns, input).map_err(|error| error.to_string())?;
        Ok(event.map(|event| match event {
            ServerEvent::Negotiate(message) => {
                self.asked = "negotiate";
                format!("Negotiate {} {}", message.uuid, message.session)
            }
            ServerEvent::Establish(message) => {
                self.asked = "establish";
                format!("Establish {} next {}", message.uuid, message.next_seq)
            }
            ServerEvent::RetransmitRequest(message) => {
                self.request = *message;
                format!("RetransmitRequest {}+{}", message.from_seq, message.count)
            }
            ServerEvent::Message { number, frame, missing, is_sent_again } => {
                let again = if is_sent_again { " again" } else { "" };
                format!("Message {number} {}{}{again}", frame.template, show_missing(missing))
            }
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
