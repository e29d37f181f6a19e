/* SPDX-License-Identifier: Apache-2.0 */
/* Sends blocks of a KV cache to another host. tmad gathers them, from all
 * layers, into a slot; one write of NIXL brings the slot to the peer, whose
 * tmad scatters it into a cache of another layout. Slots are used in turn: one
 * is filled and another one emptied while a third one travels.
 *
 *     nixl decode PORT             on one host, and then
 *     nixl prefill ADDRESS PORT    on the other one */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nixl.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <tmaclient.h>
#include <vector>

namespace
{

constexpr int LAYERS = 8, POOL = 64;  /* blocks of each layer */
constexpr int PIECES = 10, PIECE = 4; /* blocks that a slot holds */
constexpr int TOKENS = 16, HEADS = 8, SIZE = 64;
constexpr uint64_t BLOCK = TOKENS * HEADS * SIZE;
constexpr uint64_t BLOCK_BYTES = BLOCK * sizeof(uint16_t);
constexpr uint64_t LAYER_BYTES = PIECE * BLOCK_BYTES;
constexpr uint64_t SLOT_BYTES = LAYERS * LAYER_BYTES;
constexpr int SLOTS = 3;

void check(tma_client *client, int r)
{
	if (r < 0)
		throw std::runtime_error(
		    std::string(tma_status_name(r)) + ": " +
		    (client ? tma_last_error(client) : "out of memory"));
}

void check(nixl_status_t r)
{
	if (r < 0)
		throw std::runtime_error("NIXL: " +
		                         nixlEnumStrings::statusStr(r));
}

/* Waits a little where nothing has happened, but not for ever. */
void wait_unless(bool progress)
{
	using clock = std::chrono::steady_clock;
	static clock::time_point last = clock::now();

	if (progress)
		last = clock::now();
	else if (clock::now() - last > std::chrono::seconds(30))
		throw std::runtime_error("the peer is silent");
	else
		std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/* The numbers of the blocks of a piece, in the sender's cache (step 5) and in
 * the receiver's (step 7). */
std::vector<int32_t> list(int piece, int step)
{
	std::vector<int32_t> blocks;

	for (int i = piece * PIECE; i < (piece + 1) * PIECE; i++)
		blocks.push_back((i * step + 1) % POOL);
	return blocks;
}

/* Of a message, "piece 3": 3. The peer may send anything. */
int piece_of(const std::string &message)
{
	int piece;

	if (sscanf(message.c_str(), "%*s %d", &piece) != 1 || piece < 0 ||
	    piece >= PIECES)
		throw std::runtime_error("not expected: " + message);
	return piece;
}

/* ---- What a host has ----------------------------------------------------- */

class Host
{
      public:
	tma_client *client = tma_new();
	std::vector<uint16_t *> cache; /* each layer is a region of its own */
	tma_table *layers = nullptr;
	tma_region *slots = nullptr; /* in device memory if tmad has a device */
	struct tma_mapping memory = {}; /* of the slots */
	nixlAgent agent;

	Host(const char *name, uint16_t port)
	    : agent(name, nixlAgentConfig(false, true, port))
	{
		std::vector<struct tma_place> places(LAYERS);
		nixlBackendH *ucx;

		check(client, tma_connect(client, nullptr));
		for (struct tma_place &place : places) {
			check(client, tma_region_create_kind(
					  client, TMA_REGION_MEMFD,
					  POOL * BLOCK_BYTES, &place.region));
			cache.push_back(static_cast<uint16_t *>(
			    tma_region_data(place.region)));
		}
		check(client, tma_table_prepare(client, places.data(), LAYERS,
		                                &layers));
		check(client,
		      tma_region_create(client, SLOTS * SLOT_BYTES, &slots));

		/* Nothing but the slots is within a peer's reach. */
		check(client, tma_region_map(slots, &memory));
		check(agent.createBackend("UCX", {}, ucx));
		check(agent.registerMem(registered()));
	}

	~Host()
	{
		agent.deregisterMem(registered());
		tma_free(client);
	}

	nixl_mem_t type() const
	{
		return memory.device < 0 ? DRAM_SEG : VRAM_SEG;
	}

	nixlBasicDesc slot(int i, uint64_t size) const
	{
		return { reinterpret_cast<uintptr_t>(memory.address) +
			     i * SLOT_BYTES,
			 size,
			 uint64_t(memory.device < 0 ? 0 : memory.device) };
	}

	/* Whether the peer's metadata is here. */
	bool knows(const char *peer) const
	{
		return agent.checkRemoteMD(peer, nixl_xfer_dlist_t(type())) ==
		       NIXL_SUCCESS;
	}

	std::vector<std::string> messages(const char *peer)
	{
		nixl_notifs_t all;

		check(agent.getNotifs(all));
		return all[peer];
	}

	/* Moves a piece between the cache and its slot. user comes back with
	 * the ticket. */
	void submit(int piece, bool is_gather, void *user)
	{
		const std::vector<int32_t> index =
		    list(piece, is_gather ? 5 : 7);
		struct tma_tensor cached = {}, packed = {};
		struct tma_transform transform = {};
		struct tma_blocks blocks = {};
		struct tma_order order = {};
		const int swapped[] = { 1, 0, 2 };
		tma_ticket ticket;

		packed.region = slots;
		packed.offset = piece % SLOTS * SLOT_BYTES;
		packed.dtype = cached.dtype = TMA_BFLOAT16;
		packed.rank = cached.rank = 3;
		packed.shape[0] = cached.shape[0] = TOKENS;
		packed.shape[1] = cached.shape[1] = HEADS;
		packed.shape[2] = cached.shape[2] = SIZE;
		order.user = user;
		blocks.transform = &transform;
		blocks.count = index.size();
		blocks.index_dtype = TMA_INT32;
		blocks.index = index.data();
		blocks.limit = POOL;
		blocks.order = &order;
		if (is_gather) { /* [token, head, ...] on either side */
			transform.dst = &packed;
			transform.src = &cached;
			blocks.dst_layer_step = LAYER_BYTES;
			blocks.src_table = layers;
			check(client,
			      tma_submit_gather(client, &blocks, &ticket));
		} else { /* the receiver's cache has [head, token, ...] */
			cached.shape[0] = HEADS;
			cached.shape[1] = TOKENS;
			transform.dst = &cached;
			transform.src = &packed;
			transform.perm = swapped;
			blocks.dst_table = layers;
			blocks.src_layer_step = LAYER_BYTES;
			check(client,
			      tma_submit_scatter(client, &blocks, &ticket));
		}
	}

	/* The user of a request that has ended; otherwise NULL. */
	void *next()
	{
		struct tma_completed done;

		if (tma_next(client, 0, &done) != 0)
			return nullptr;
		check(client, done.result.status);
		return done.user;
	}

      private:
	nixl_reg_dlist_t registered() const
	{
		nixl_reg_dlist_t all(type());

		all.addDesc(nixlBlobDesc(slot(0, memory.size), ""));
		return all;
	}
};

uint16_t value(int layer, int block, int token, int head, int i)
{
	const uint64_t n =
	    (((uint64_t)layer * POOL + block) * TOKENS + token) * HEADS * SIZE +
	    head * SIZE + i;

	return uint16_t((n * 2654435761u >> 16) | 1);
}

/* ---- The side that sends ------------------------------------------------- */

struct Slot {
	int piece = -1;
	nixlXferReqH *write = nullptr;
	bool is_written = false, is_emptied = false;
};

void prefill(const char *address, uint16_t port)
{
	Host host("prefill", 0);
	nixl_opt_args_t peer, notice;
	std::vector<std::string> messages;
	Slot slots[SLOTS];
	nixlBasicDesc there;
	int type, begun = 0, ended = 0;

	for (int layer = 0; layer < LAYERS; layer++)
		for (uint64_t i = 0; i < POOL * BLOCK; i++)
			host.cache[layer][i] =
			    value(layer, i / BLOCK, i / (HEADS * SIZE) % TOKENS,
			          i / SIZE % HEADS, i % SIZE);

	/* Each side gets the other one's metadata; then the peer says where its
	 * slots are. */
	peer.ipAddr = address;
	peer.port = port;
	check(host.agent.sendLocalMD(&peer));
	check(host.agent.fetchRemoteMD("decode", &peer));
	while (!host.knows("decode"))
		wait_unless(false);
	while ((messages = host.messages("decode")).empty())
		wait_unless(false);
	if (sscanf(messages[0].c_str(), "slots %lu %lu %d", &there.addr,
	           &there.devId, &type) != 3)
		throw std::runtime_error("not expected: " + messages[0]);
	there.len = SLOT_BYTES;

	while (ended < PIECES) {
		bool progress = false;

		if (Slot &slot = slots[begun % SLOTS];
		    begun < PIECES && slot.piece < 0) {
			slot.piece = begun++;
			host.submit(slot.piece, true, &slot);
			progress = true;
		}
		check(host.client, tma_dispatch(host.client));
		while (auto slot = static_cast<Slot *>(host.next())) {
			const int i = slot->piece % SLOTS;
			nixl_xfer_dlist_t from(host.type()),
			    to(static_cast<nixl_mem_t>(type));

			from.addDesc(host.slot(i, SLOT_BYTES));
			to.addDesc({ there.addr + i * SLOT_BYTES, SLOT_BYTES,
			             there.devId });
			notice.notif = "piece " + std::to_string(slot->piece);
			check(host.agent.createXferReq(NIXL_WRITE, from, to,
			                               "decode", slot->write,
			                               &notice));
			check(host.agent.postXferReq(slot->write));
			progress = true;
		}
		for (const std::string &message : host.messages("decode"))
			slots[piece_of(message) % SLOTS].is_emptied = true;
		for (Slot &slot : slots) {
			nixl_status_t r = NIXL_IN_PROG;

			if (slot.write)
				check(r = host.agent.getXferStatus(slot.write));
			if (r == NIXL_SUCCESS) {
				check(host.agent.releaseXferReq(slot.write));
				slot.write = nullptr;
				slot.is_written = true;
			}
			if (slot.is_written && slot.is_emptied) {
				slot = Slot();
				ended++;
				progress = true;
			}
		}
		wait_unless(progress);
	}
	check(host.agent.genNotif("decode", "end"));
	printf("%d pieces of %d bytes sent\n", ended, (int)SLOT_BYTES);
}

/* ---- The side that receives ---------------------------------------------- */

/* What was sent is where it belongs, and everything else is as it was. */
void check_cache(const Host &host)
{
	std::vector<int> from(POOL, -1);

	for (int piece = 0; piece < PIECES; piece++)
		for (int i = 0; i < PIECE; i++)
			from[list(piece, 7)[i]] = list(piece, 5)[i];
	for (int layer = 0; layer < LAYERS; layer++)
		for (uint64_t i = 0; i < POOL * BLOCK; i++) {
			const int block = from[i / BLOCK];
			const uint16_t wanted =
			    block < 0
				? 0
				: value(layer, block, i / SIZE % TOKENS,
			                i / (TOKENS * SIZE) % HEADS, i % SIZE);

			if (host.cache[layer][i] != wanted)
				throw std::runtime_error("a byte is wrong");
		}
}

void decode(uint16_t port)
{
	Host host("decode", port);
	const nixlBasicDesc slots = host.slot(0, SLOT_BYTES);
	int pieces[SLOTS], received = 0;
	bool is_ended = false;

	while (!host.knows("prefill"))
		wait_unless(false);
	check(host.agent.genNotif("prefill",
	                          "slots " + std::to_string(slots.addr) + " " +
	                              std::to_string(slots.devId) + " " +
	                              std::to_string(host.type())));
	while (!is_ended) {
		const int before = received;

		for (const std::string &message : host.messages("prefill")) {
			is_ended = message == "end";
			if (is_ended)
				break;
			const int n = piece_of(message);
			pieces[n % SLOTS] = n;
			host.submit(n, false, &pieces[n % SLOTS]);
		}
		check(host.client, tma_dispatch(host.client));
		while (auto piece = static_cast<int *>(host.next())) {
			check(host.agent.genNotif(
			    "prefill", "emptied " + std::to_string(*piece)));
			received++;
		}
		wait_unless(received > before);
	}
	check_cache(host);
	printf("%d pieces received\n", received);
}

} /* namespace */

int main(int argc, char **argv)
{
	try {
		if (argc == 3 && !strcmp(argv[1], "decode"))
			decode(atoi(argv[2]));
		else if (argc == 4 && !strcmp(argv[1], "prefill"))
			prefill(argv[2], atoi(argv[3]));
		else
			throw std::runtime_error(
			    "nixl decode PORT, or nixl prefill ADDRESS PORT");
	} catch (const std::exception &why) {
		fprintf(stderr, "%s\n", why.what());
		return 1;
	}
	return 0;
}
