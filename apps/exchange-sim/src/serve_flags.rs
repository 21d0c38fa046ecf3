//! The flags of `exchange-sim serve`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use exchange_sim::{
    AccountSettings, CancelOnDisconnect, CopiesOf, FaultPlan, FaultRule, Interface, RerequestSettings, SendSockets,
    Serving, SessionName, Settings, parse_duration, parse_positive, parse_server_address,
};
use market::truth::Group;
use matching_engine::OnHalt;
use order_entry::soupbin::Credentials;

use crate::{Injected, Mdp3Flags, parse_login};

/// The flags of an exchange that answers.
#[derive(Args)]
pub(crate) struct ServeFlags {
    /// Take orders at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:26400", value_parser = parse_server_address)]
    orders: SocketAddrV4,
    /// Take orders by FIX 4.2, 4.4 or FIXT 1.1 at this address and port too: SenderCompID (49) is
    /// an account's user, TargetCompID (56) is EXCHANGE, Password (554) the account's.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) fix: Option<SocketAddrV4>,
    /// Take orders by OUCH 4.2 over SoupBinTCP at this address and port too.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) ouch42: Option<SocketAddrV4>,
    /// Take orders by Cboe BOE version 2 at this address and port too: the first four characters of
    /// an account's user are the login's user, the others its sub-identifier.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) boe2: Option<SocketAddrV4>,
    /// Take orders by Cboe BOE version 3 at this address and port too.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) boe3: Option<SocketAddrV4>,
    /// Take orders by CME iLink 3 at this address and port too: the first three characters of an
    /// account's user are the login's session, the others its firm, its password's bytes are the
    /// key.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) ilink3: Option<SocketAddrV4>,
    /// Give accounts copies of their trades at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    drop_copy: Option<SocketAddrV4>,
    /// Give accounts copies by FIX of their trades by PROTOCOL (fix, boe2, boe3, ilink3 or ouch42)
    /// at this address and port: a FIX session of the account as for orders. May be repeated.
    #[arg(long, value_name = "PROTOCOL=ADDRESS:PORT", value_parser = parse_copies)]
    pub(crate) fix_drop_copy: Vec<(CopiesOf, SocketAddrV4)>,
    /// An account: a user of 1 to 6 characters and a password of 1 to 10. May be repeated.
    #[arg(long = "account", value_name = "USER:PASSWORD", default_value = "TRADER:SECRET", value_parser = parse_account)]
    accounts: Vec<AccountSettings>,
    /// Cancel the orders of accounts in an instrument that is halted; by default they wait for the
    /// cross that ends the halt.
    #[arg(long)]
    cancel_on_halt: bool,
    /// Keep the orders of an account whose connection is gone: --cancel-on-disconnect none.
    #[arg(long, conflicts_with = "cancel_on_disconnect")]
    keep_on_disconnect: bool,
    /// Cancel these orders of an account whose connection is gone: all, continuous (those for an
    /// auction stay), or none.
    #[arg(long, value_name = "ORDERS", default_value = "all")]
    cancel_on_disconnect: CancelWord,
    /// Refuse orders of an account beyond so many a second.
    #[arg(long, value_name = "ORDERS")]
    throttle: Option<u32>,
    /// Bid and offer so many shares at three prices on each side of each instrument, so that orders
    /// find somebody.
    #[arg(long, value_name = "SHARES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=999_999))]
    house: u32,
    /// Publish so many messages a second besides, by orders of the venue itself that come and go
    /// around the opening price; k, M and G are understood.
    #[arg(long, value_name = "MESSAGES", value_parser = parse_positive)]
    pub(crate) flow: Option<u64>,
    /// A fault: FAULT=CHANCE or FAULT@NUMBER, where FAULT is lost-ack, half-open,
    /// sequence-surprise, throttle, crossing-fill or new-session. May be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<FaultRule>,
    /// Send the feed from this interface, by its name or one of its addresses (lo: to this host
    /// alone).
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Interface,
    /// Open the market after this time, so that receivers can join. 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    start_after: Duration,
    /// Take orders for the opening crosses for this time before the market opens, and publish
    /// imbalances. 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) quote_for: Duration,
    /// Obey the commands of this file: a line each, with its time since the start, such as `2s halt
    /// AAPL`. They are halt, quote (orders for a cross are taken), imbalance, cross, close, each
    /// with SYMBOL or all, and break NUMBER (of a match).
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Obey commands of the standard input, a line each as in a script, without a time.
    #[arg(long)]
    pub(crate) control: bool,
    /// Answer re-requests of the feed (MoldUDP64) at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    rerequest: Option<SocketAddrV4>,
    /// Send images of all open orders (GLIMPSE over SoupBinTCP) at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_server_address)]
    pub(crate) glimpse: Option<SocketAddrV4>,
    /// User and password for images.
    #[arg(long, value_name = "USER:PASSWORD", requires = "glimpse", value_parser = parse_login,
          default_value = "user:password")]
    pub(crate) glimpse_login: Credentials,
    #[command(flatten)]
    feed: LiveFeed,
}

/// The flags of a feed whose messages are not made beforehand.
#[derive(Args)]
pub(crate) struct LiveFeed {
    /// Names the instruments, and draws the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Listed symbols.
    #[arg(long, default_value_t = 10)]
    symbols: u16,
    /// Session of MoldUDP64 and of SoupBinTCP, 1 to 10 characters.
    #[arg(long, default_value_t)]
    session: SessionName,
    /// Multicast group of line A.
    #[arg(long, default_value_t = Settings::default().lines[0].group)]
    group_a: Group,
    /// Multicast group of line B.
    #[arg(long, default_value_t = Settings::default().lines[1].group)]
    group_b: Group,
    /// UDP port of both groups.
    #[arg(long, default_value_t = 26477)]
    port: u16,
    #[command(flatten)]
    mdp3: Mdp3Flags,
    #[command(flatten)]
    injected: Injected,
}

/// [`CancelOnDisconnect`] as a flag.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CancelWord {
    All,
    Continuous,
    None,
}

impl ServeFlags {
    pub(crate) fn settings(&self) -> Settings {
        let LiveFeed { seed, symbols, ref session, group_a, group_b, port, ref mdp3, ref injected } = self.feed;
        let lines = injected.lines([group_a, group_b]);
        Settings { seed, symbols, session: session.clone(), port, lines, mdp3: mdp3.groups(), ..Settings::default() }
    }

    pub(crate) fn serving(self) -> Serving {
        let mut accounts = self.accounts;
        for account in &mut accounts {
            account.cancel_on_disconnect = match self.cancel_on_disconnect {
                _ if self.keep_on_disconnect => CancelOnDisconnect::None,
                CancelWord::All => CancelOnDisconnect::All,
                CancelWord::Continuous => CancelOnDisconnect::Continuous,
                CancelWord::None => CancelOnDisconnect::None,
            };
            account.on_halt = if self.cancel_on_halt { OnHalt::Cancel } else { OnHalt::Keep };
        }
        Serving {
            send_sockets: SendSockets { interface: self.interface, loopback: true },
            orders: self.orders,
            drop_copy: self.drop_copy,
            rerequest: self
                .rerequest
                .map(|address| RerequestSettings { address, messages: RerequestSettings::MESSAGES_DEFAULT }),
            start_after: self.start_after,
            accounts,
            rate_max: self.throttle,
            house_shares: self.house,
            faults: FaultPlan { seed: self.feed.seed, rules: self.faults },
        }
    }
}

fn parse_account(text: &str) -> Result<AccountSettings, String> {
    let account = text.split_once(':').and_then(|(user, password)| match (user, password) {
        ("", _) | (_, "") => None,
        (user, password) => AccountSettings::new(user, password),
    });
    account.ok_or_else(|| "use USER:PASSWORD, of 1 to 6 and of 1 to 10 characters".into())
}

fn parse_copies(text: &str) -> Result<(CopiesOf, SocketAddrV4), String> {
    let (of, address) = text.split_once('=').ok_or("use PROTOCOL=ADDRESS:PORT, such as boe2=127.0.0.1:26410")?;
    Ok((of.parse()?, parse_server_address(address)?))
}
