/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of gdb's remote protocol: how they are framed, and how their text is read. */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/fd.h"

struct Packet {
	enum Kind : char { NORMAL = '$', NOTIFICATION = '%', INTERRUPT = '\x03' };

	Kind kind;
	std::string data; /* as on the wire: escaped, and with its runs */
	/* The same as the packet before, and the sender has acknowledged nothing in between. */
	bool again = false;
};

/* A queue of bytes: append() at the end and drop() at the front take linear time. */
class Bytes {
public:
	void append(std::string_view more)
	{
		if (gone_ > text_.size() / 2) {
			text_.erase(0, gone_);
			gone_ = 0;
		}
		text_ += more;
	}
	void drop(size_t n) { gone_ += n; }
	std::string_view view() const { return std::string_view(text_).substr(gone_); }
	size_t size() const { return text_.size() - gone_; }

private:
	std::string text_;
	size_t gone_ = 0; /* bytes of text_ */
};

/* Splits the bytes that a side sends into packets, and the acknowledgements between packets. */
class Framing {
public:
	void add(std::string_view bytes) { bytes_.append(bytes); }
	std::optional<Packet> next();

	/*
	 * Returns the acknowledgements for the packets so far, "+" or "-" for each, to be sent to
	 * the other side.
	 */
	std::string take_acks() { return std::exchange(acks_, ""); }
	/* Whether the other side has asked for the last packet again. */
	bool take_resend() { return std::exchange(resend_, false); }
	/* QStartNoAckMode: neither sends nor expects acknowledgements from now on. */
	void stop_acks() { acknowledges_ = false; }
	/*
	 * A packet longer than any that gdb or gdbserver sends: the peer does not speak the
	 * protocol.
	 */
	bool overlong() const { return bytes_.size() > LONGEST; }

	static constexpr size_t LONGEST = 1 << 20; /* bytes; gdb's have 16 KiB */

private:
	bool find_packet();

	Bytes bytes_;
	std::string acks_, last_;
	bool acked_ = true; /* the other side has acknowledged a packet since last_ */
	bool acknowledges_ = true, resend_ = false;
};

/* $DATA#CHECKSUM */
std::string framed(const Packet &packet);

/* One side of the proxy: a descriptor to read packets from, and one to write them to. */
class Connection {
public:
	Connection(Fd in, Fd out)
		: in_(std::move(in))
		, out_(std::move(out))
	{
	}

	int in() const { return in_.get(); }
	int out() const { return out_.get(); }
	/* Reads the available bytes. Returns false when the other side is gone. */
	bool receive();
	/* Returns and acknowledges the next packet. */
	std::optional<Packet> next();
	void send(const Packet &packet);
	void send(std::string data) { send(Packet{ Packet::NORMAL, std::move(data) }); }
	void stop_acks() { framing_.stop_acks(); }
	bool overlong() const { return framing_.overlong(); }

	/* Packets wait here, so that a side that does not read does not block the other one. */
	bool has_output() const { return output_.size(); }
	/* Too many of them: the other side does not read at all. */
	bool stuck() const { return output_.size() > Framing::LONGEST; }
	/* Writes some of them. Does not block if poll() reports that out() is writable. */
	void write_some();

private:
	Fd in_, out_;
	Framing framing_;
	Bytes output_;
	std::string last_; /* sent: the other side may ask for it again */
	bool broken_ = false;
};

/* Without escapes and runs: "0*,}]" is "0000000}". */
std::string plain(std::string_view data);

/* Parses the text of a packet from left to right: each call consumes what it returns. */
class Text {
public:
	explicit Text(std::string_view rest)
		: rest_(rest)
	{
	}

	bool empty() const { return rest_.empty(); }
	std::string_view rest() const { return rest_; }
	bool skip(std::string_view prefix);
	/* Up to @separator, which is consumed but not returned, or to the end. */
	std::string_view until(char separator);
	std::optional<uint64_t> hex();
	/* @size bytes, two digits each. */
	std::optional<std::string> bytes(size_t size);

private:
	std::string_view rest_;
};
