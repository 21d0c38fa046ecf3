//! The shortest receiver: counts a group's datagrams, until Ctrl-C. As root, or with the
//! capabilities that the error names: `cargo run --release -p wirepath --example receiver --
//! eth1`; without any rights: `.. -- pcap:day.pcap.gz`.

use wirepath::prelude::*;

#[derive(Default)]
struct Ticks(u64);

impl App for Ticks {
    fn on_datagram(&mut self, _datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.0 += 1;
    }

    fn on_stop(&mut self, _cx: &mut Cx<'_>) {
        println!("{} datagrams", self.0);
    }
}

fn main() -> wirepath::Result<()> {
    let name = std::env::args().nth(1).unwrap_or("eth1".into());
    Port::open(&name)?.subscribe(multicast([239, 1, 1, 1], 9000)).run(|_worker| Ticks::default())
}
