# demo_metadata.sh: a metadata server of a script's own, on a free port of loopback. For scripts to source; they set `build` and `scratch`,
# and call metadata_stop when they end, however they do.
# shellcheck shell=sh disable=SC2154
metadata=P2PHANDSHAKE # the connection string for the programs
metadata_kind=p2p
metadata_pid=

# metadata_run KIND PORT: becomes the server
metadata_run() {
	case $1 in
	redis) exec redis-server --port "$2" --bind 127.0.0.1 --save '' --dir "$scratch" ;;
	etcd) # alone: nobody reaches it as a peer
		exec etcd --data-dir "$scratch/etcd" --listen-client-urls "http://127.0.0.1:$2" --advertise-client-urls "http://127.0.0.1:$2" \
			--listen-peer-urls http://127.0.0.1:0 --initial-advertise-peer-urls http://127.0.0.1:0 \
			--initial-cluster default=http://127.0.0.1:0 ;;
	http) exec "$build/neap-master" --first --rpc_port=0 --metrics_port=0 --enable_http_metadata_server --http_metadata_server_port="$2" ;;
	esac
}

# metadata_at KIND PORT: starts it and waits until it says that it serves; it ends instead when the port is another's
metadata_at() {
	metadata_run "$1" "$2" >"$scratch/$1.log" 2>&1 &
	metadata_pid=$!
	tries=0
	while ! grep -qiE 'ready to (accept|serve)|serving on' "$scratch/$1.log"; do
		kill -0 "$metadata_pid" 2>/dev/null || return 1
		tries=$((tries + 1))
		[ $tries -gt 100 ] && return 1
		sleep 0.1
	done
}

# metadata_start KIND
metadata_start() {
	metadata_kind=$1
	[ "$1" = p2p ] && return 0
	for attempt in 1 2 3 4 5 6 7 8; do
		metadata_port=$((20000 + ($$ * 7 + attempt * 997) % 10000))
		metadata_at "$1" "$metadata_port" && break
		metadata_stop
	done
	[ -n "$metadata_pid" ] || { echo "the $1 server did not start:"; tail -5 "$scratch/$1.log"; return 1; }
	case $1 in
	redis) metadata=redis://127.0.0.1:$metadata_port ;;
	etcd) metadata=etcd://127.0.0.1:$metadata_port ;;
	http) metadata=http://127.0.0.1:$metadata_port/metadata ;;
	esac
}

# metadata_keys NAME: one line with the keys that the segment of this name has published
metadata_keys() {
	case $metadata_kind in
	redis) redis-cli -p "$metadata_port" --scan --pattern 'mooncake/*' ;;
	etcd) etcdctl --endpoints="127.0.0.1:$metadata_port" get --prefix --keys-only mooncake/ ;;
	http) # it lists nothing, but can be asked
		for key in "mooncake/ram/$1" "mooncake/rpc_meta/$1"; do
			curl -sfG --noproxy '*' -o /dev/null --data-urlencode "key=$key" "$metadata" && echo "$key"
		done ;;
	p2p) echo 'none: each process is asked itself' ;;
	esac | grep . | sort | tr '\n' ' '
	echo
}

metadata_stop() {
	[ -n "$metadata_pid" ] && kill -9 "$metadata_pid" 2>/dev/null && wait "$metadata_pid" 2>/dev/null
	metadata_pid=
}
