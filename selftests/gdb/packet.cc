// SPDX-License-Identifier: GPL-2.0
#include "gdb/packet.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <numeric>

static uint8_t checksum(std::string_view data)
{
	return std::accumulate(data.begin(), data.end(), uint8_t());
}

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

std::string framed(const Packet &packet)
{
	char sum[4];

	if (packet.kind == Packet::INTERRUPT)
		return std::string(1, packet.kind);
	snprintf(sum, sizeof(sum), "#%02x", checksum(packet.data));
	return char(packet.kind) + packet.data + sum;
}

/* Drops the bytes before the next packet. Returns whether one begins. */
bool Framing::find_packet()
{
	size_t n = 0;

	for (const char c : bytes_.view()) {
		if (c == Packet::NORMAL || c == Packet::NOTIFICATION || c == Packet::INTERRUPT)
			break;
		resend_ |= c == '-' && acknowledges_;
		acked_ |= c == '+';
		n++;
	}
	bytes_.drop(n);
	return bytes_.size();
}

std::optional<Packet> Framing::next()
{
	while (find_packet()) {
		const std::string_view bytes = bytes_.view();

		if (bytes[0] == Packet::INTERRUPT) {
			bytes_.drop(1);
			return Packet{ Packet::INTERRUPT, "" };
		}

		const size_t end = bytes.find('#');

		if (end == bytes.npos || bytes.size() < end + 3)
			return {};

		/* A sender that gave up in the middle of a packet begins again with another '$'. */
		const size_t last = bytes.rfind('$', end), begin = last == bytes.npos ? 0 : last;
		Packet packet{ Packet::Kind(bytes[begin]),
			       std::string(bytes.substr(begin + 1, end - begin - 1)) };
		const int sum = digit(bytes[end + 1]) << 4 | digit(bytes[end + 2]);

		bytes_.drop(end + 3);
		if (!acknowledges_ || packet.kind == Packet::NOTIFICATION)
			return packet;
		acks_ += sum == checksum(packet.data) ? '+' : '-';
		if (acks_.back() == '-')
			continue;
		packet.again = !acked_ && packet.data == last_;
		acked_ = false;
		last_ = packet.data;
		return packet;
	}
	return {};
}

std::optional<Packet> Connection::next()
{
	std::optional<Packet> packet = framing_.next();

	output_.append(framing_.take_acks());
	if (framing_.take_resend())
		output_.append(last_);
	return packet;
}

void Connection::write_some()
{
	/* A pipe that poll() reports as writable takes PIPE_BUF bytes at once: pipe(7). */
	const std::string_view bytes = output_.view().substr(0, PIPE_BUF);
	const ssize_t n = write(out_.get(), bytes.data(), bytes.size());

	if (n > 0) {
		output_.drop(n);
	} else if (errno != EINTR) {
		output_.drop(output_.size());
		broken_ = true;
	}
}

void Connection::send(const Packet &packet)
{
	last_ = framed(packet);
	output_.append(last_);
}

bool Connection::receive()
{
	char buffer[1 << 16];
	const ssize_t n = read(in_.get(), buffer, sizeof(buffer));

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0 || broken_)
		return false;
	framing_.add({ buffer, size_t(n) });
	return true;
}

std::string plain(std::string_view data)
{
	std::string text;

	for (size_t i = 0; i < data.size(); i++) {
		if (data[i] == '}' && i + 1 < data.size())
			text += char(data[++i] ^ 0x20);
		else if (data[i] == '*' && i + 1 < data.size() && !text.empty())
			text.append(std::max(uint8_t(data[++i]) - 29, 0), text.back());
		else
			text += data[i];
	}
	return text;
}

bool Text::skip(std::string_view prefix)
{
	if (!rest_.starts_with(prefix))
		return false;
	rest_.remove_prefix(prefix.size());
	return true;
}

std::string_view Text::until(char separator)
{
	const std::string_view taken = rest_.substr(0, rest_.find(separator));

	rest_.remove_prefix(std::min(taken.size() + 1, rest_.size()));
	return taken;
}

std::optional<uint64_t> Text::hex()
{
	uint64_t number = 0;
	const auto [end, err] =
		std::from_chars(rest_.data(), rest_.data() + rest_.size(), number, 16);

	if (err != std::errc())
		return {};
	rest_.remove_prefix(end - rest_.data());
	return number;
}

std::optional<std::string> Text::bytes(size_t size)
{
	std::string bytes;

	if (size > rest_.size() / 2)
		return {};
	for (size_t i = 0; i < size; i++) {
		const int high = digit(rest_[2 * i]), low = digit(rest_[2 * i + 1]);

		if (high < 0 || low < 0)
			return {};
		bytes += char(high << 4 | low);
	}
	rest_.remove_prefix(2 * size);
	return bytes;
}
