// Both ends of a wire of plain memory in one program: a client that sends lines and a server that
// echoes them, over TCP, with the owners of wirepath.hpp.
#include <iostream>
#include <string>
#include <vector>

#include <wirepath.hpp>

int main()
try {
    const std::string lines = "hello\nfrom C++\n";
    auto options = wirepath::options();
    options.connections = 16;
    options.held = 64;
    options.address = "192.0.2.1/24";
    wirepath::Stack client("memory:echo", options);
    options.address = "192.0.2.2/24";
    wirepath::Stack server("memory:echo", options);

    const auto listener = server.listen(wp_ipv4(192, 0, 2, 2, 7));
    const wp_conn conn = client.connect(wp_ipv4(192, 0, 2, 1, 0), wp_ipv4(192, 0, 2, 2, 7));

    std::string echoed;
    std::vector<wirepath::Buffer> held; // given back when they go
    bool is_over = false;
    while (!is_over) {
        server.poll([&](const wp_event &event) {
            if (event.type == WP_EVENT_DATA)
                wirepath::check(server.send(event.conn, wirepath::bytes(event)));
            if (event.type == WP_EVENT_PEER_CLOSED)
                wirepath::check(server.close(event.conn));
        });
        client.poll([&](const wp_event &event) {
            if (event.type == WP_EVENT_CONNECTED)
                wirepath::check(client.send(conn, lines));
            if (event.type == WP_EVENT_DATA) {
                held.push_back(client.hold(event));
                echoed += wirepath::bytes(event).str();
                if (echoed.size() == lines.size())
                    wirepath::check(client.shutdown(conn));
            }
            // The server's end: ours is in TIME-WAIT for a minute.
            is_over = is_over || event.type == WP_EVENT_PEER_CLOSED;
        });
    }
    std::cout << echoed;
    try {
        client.prepare(wp_conn{99}, wirepath::Bytes::text("an order of no connection"));
        return 1;
    } catch (const wirepath::Error &error) {
        std::cout << error.code() << ": " << error.what() << "\n";
    }
    return echoed == lines ? 0 : 1;
} catch (const wirepath::Error &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
