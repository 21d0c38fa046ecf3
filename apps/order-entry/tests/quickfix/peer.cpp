// A peer of QuickFIX for the tests of order_entry's FIX session: `peer ROLE PORT KEY=VALUE ...`,
// with settings of QuickFIX as keys. Prints what happens, a line each:
//   logon | logout | in MESSAGE | out MESSAGE     with | for SOH
// and does what it reads:
//   send TYPE TAG=VALUE|TAG=VALUE    a message, numbered also while logged out
//   next_out NUMBER                  its next number
//   logout | quit
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include <quickfix/Application.h>
#include <quickfix/Message.h>
#include <quickfix/MessageStore.h>
#include <quickfix/Session.h>
#include <quickfix/SessionSettings.h>
#include <quickfix/SocketAcceptor.h>
#include <quickfix/SocketInitiator.h>

static std::mutex printing;

static void print(const std::string& what, const FIX::Message* message = nullptr) {
    std::string text = message ? message->toString() : "";
    for (char& c : text) {
        if (c == '\001') c = '|';
    }
    std::lock_guard<std::mutex> lock(printing);
    std::cout << what << (message ? " " : "") << text << std::endl;
}

struct Peer : FIX::Application {
    void onCreate(const FIX::SessionID&) override {}
    void onLogon(const FIX::SessionID&) override { print("logon"); }
    void onLogout(const FIX::SessionID&) override { print("logout"); }
    void toAdmin(FIX::Message& message, const FIX::SessionID&) override { print("out", &message); }
    void toApp(FIX::Message& message, const FIX::SessionID&) throw(FIX::DoNotSend) override { print("out", &message); }
    void fromAdmin(const FIX::Message& message, const FIX::SessionID&) throw(
        FIX::FieldNotFound, FIX::IncorrectDataFormat, FIX::IncorrectTagValue, FIX::RejectLogon) override {
        print("in", &message);
    }
    void fromApp(const FIX::Message& message, const FIX::SessionID&) throw(
        FIX::FieldNotFound, FIX::IncorrectDataFormat, FIX::IncorrectTagValue, FIX::UnsupportedMessageType) override {
        print("in", &message);
    }
};

static void send(const FIX::SessionID& id, std::istream& words) {
    std::string type, fields, field;
    words >> type;
    std::getline(words >> std::ws, fields);
    FIX::Message message;
    message.getHeader().setField(35, type);
    std::istringstream parts(fields);
    while (std::getline(parts, field, '|')) {
        const auto at = field.find('=');
        const int tag = std::stoi(field.substr(0, at));
        (tag == 97 ? message.getHeader() : static_cast<FIX::FieldMap&>(message)).setField(tag, field.substr(at + 1));
    }
    FIX::Session::sendToTarget(message, id);
}

static void obey(const FIX::SessionID& id) {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string verb;
        words >> verb;
        FIX::Session* session = FIX::Session::lookupSession(id);
        if (verb == "send") {
            send(id, words);
        } else if (verb == "next_out") {
            int number = 0;
            words >> number;
            session->setNextSenderMsgSeqNum(number);
        } else if (verb == "logout") {
            session->logout();
        } else {
            return;
        }
    }
}

int main(int count, char** arguments) {
    const bool is_acceptor = count > 1 && std::string(arguments[1]) == "acceptor";
    std::string version = "FIX.4.4", more;
    for (int idx = 3; idx < count; ++idx) {
        const std::string word = arguments[idx];
        if (word.rfind("BeginString=", 0) == 0) version = word.substr(12);
        else more += word + "\n";
    }
    std::ostringstream text;
    text << "[DEFAULT]\nConnectionType=" << (is_acceptor ? "acceptor" : "initiator") << "\n"
         << (is_acceptor ? "SocketAcceptPort=" : "SocketConnectPort=") << arguments[2] << "\n"
         << "SocketConnectHost=127.0.0.1\nSocketReuseAddress=Y\nReconnectInterval=1\nUseDataDictionary=N\n"
         << "SenderCompID=THEM\nTargetCompID=US\n[SESSION]\nBeginString=" << version << "\n"
         << (version == "FIXT.1.1" ? "DefaultApplVerID=FIX.5.0SP2\n" : "")
         << (more.find("StartTime=") == std::string::npos ? "StartTime=00:00:00\nEndTime=00:00:00\n" : "")
         << (more.find("HeartBtInt=") == std::string::npos ? "HeartBtInt=30\n" : "") << more;
    try {
        std::istringstream stream(text.str());
        FIX::SessionSettings settings(stream);
        Peer peer;
        FIX::MemoryStoreFactory stores;
        const FIX::SessionID id(version, "THEM", "US");
        if (is_acceptor) {
            FIX::SocketAcceptor acceptor(peer, stores, settings);
            acceptor.start();
            print("ready");
            obey(id);
            acceptor.stop(true);
        } else {
            FIX::SocketInitiator initiator(peer, stores, settings);
            initiator.start();
            print("ready");
            obey(id);
            initiator.stop(true);
        }
    } catch (const std::exception& error) {
        print(std::string("error ") + error.what());
        return 1;
    }
    return 0;
}
